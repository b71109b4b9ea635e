"""The methods of calibration, in a light module for the command line."""

from enum import Enum


class Method(str, Enum):
    """Where the range of a tensor ends."""

    ENTROPY = "entropy"
    """Where the rounded numbers are distributed most like the numbers."""
    MINMAX = "minmax"
    """At the largest number."""
    PERCENTILE = "percentile"
    """Where one in ten thousand is larger."""
