"""The methods of calibration, in a light module for the command line."""

from enum import Enum


class Method(str, Enum):
    """The rule that sets the end of a tensor's range."""

    ENTROPY = "entropy"
    """The end at which the rounded numbers have the distribution most like the original."""
    MINMAX = "minmax"
    """The largest number."""
    PERCENTILE = "percentile"
    """The value that one number in ten thousand exceeds."""
