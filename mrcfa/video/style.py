"""`Style`: how a mask is rendered, and the default for an output."""

from dataclasses import dataclass
from enum import Enum


class Style(str, Enum):
    OVERLAY = "overlay"
    MASK = "mask"
    COLOR = "color"
    SIDE_BY_SIDE = "side-by-side"


def style_for(place: str, asked: Style | None) -> Style:
    """By default what is to be looked at shows more than the mask."""
    return asked or (Style.OVERLAY if place.endswith(".mp4") else Style.MASK)


@dataclass(frozen=True)
class Look:
    """Everything about pictures that one may ask for."""

    style: Style | None = None
    """None for the output's default."""
    alpha: float = 0.5
    """Opacity of the overlay."""
    only: tuple[str, ...] = ()
    """Classes to show; none stands for all."""
    legend: bool = True
    """Whether pictures name the classes that they show."""
