"""`Style`, the ways to render a mask, and `Look`, all options of rendering."""

from dataclasses import dataclass
from enum import Enum


class Style(str, Enum):
    """A way to render a mask."""

    OVERLAY = "overlay"
    MASK = "mask"
    COLOR = "color"
    SIDE_BY_SIDE = "side-by-side"


def style_for(place: str, chosen: Style | None) -> Style:
    """The chosen style, or the default: an overlay for videos, otherwise the mask."""
    return chosen or (Style.OVERLAY if place.endswith(".mp4") else Style.MASK)


@dataclass(frozen=True)
class Look:
    """Options of rendering."""

    style: Style | None = None
    """The style; None means the default of the output."""
    alpha: float = 0.5
    """Opacity of the overlay, 0 to 1."""
    only: tuple[str, ...] = ()
    """Names of the visible classes; empty means all."""
    legend: bool = True
    """Draw a legend of the classes in the picture."""
