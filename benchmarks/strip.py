"""The report's thumbnails as data URIs: frame, masks, differences."""

from base64 import b64encode
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrcfa.machine.extras import load

WIDTH = 360
"""Maximum width in pixels."""
_SAME, _DIFFERENT = (64, 67, 78), (255, 176, 0)

Image = NDArray[np.uint8]


def frame_picture(image: Image) -> str:
    """Data URI of an RGB image (h, w, 3)."""
    pillow = load("PIL.Image")
    return _uri(_shrunk(pillow.fromarray(image), pillow.Resampling.BILINEAR), "JPEG", quality=80)


def mask_picture(mask: Image, palette: NDArray[np.uint8]) -> str:
    """Data URI of a mask (h, w) in the bundle's colours."""
    pillow = load("PIL.Image")
    picture = pillow.fromarray(mask)
    picture.putpalette(palette.tobytes())
    return _uri(_shrunk(picture, pillow.Resampling.NEAREST), "PNG", optimize=True)


def difference_picture(mask: Image, wanted: Image) -> str:
    """Data URI of an image that is bright where masks differ; single pixels survive shrinking."""
    pillow = load("PIL.Image")
    picture = pillow.fromarray(np.where(mask != wanted, 255, 0).astype(np.uint8))
    seen = np.asarray(_shrunk(picture, pillow.Resampling.BOX)) > 0
    colours = np.where(seen[..., None], _DIFFERENT, _SAME).astype(np.uint8)
    return _uri(pillow.fromarray(colours), "PNG", optimize=True)


def _shrunk(picture: Any, method: Any) -> Any:
    if picture.width <= WIDTH:
        return picture
    return picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), method)


def _uri(picture: Any, kind: str, **options: Any) -> str:
    content = BytesIO()
    picture.save(content, kind, **options)
    return f"data:image/{kind.lower()};base64,{b64encode(content.getvalue()).decode()}"
