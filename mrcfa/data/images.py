"""Still images: what is read as one, and its pixels."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import Damaged, RuntimeFailed
from mrcfa.machine.extras import load


def read_image(path: Path) -> NDArray[np.uint8]:
    """An image of any mode as RGB (h, w, 3), upright; transparency is dropped."""
    pillow, operations = load("PIL.Image"), load("PIL.ImageOps")
    try:
        with pillow.open(path) as opened:
            image = operations.exif_transpose(opened)
            if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would clip
                image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            return np.array(image.convert("RGB"))
    except MemoryError:
        raise RuntimeFailed(f"memory ran out for the image {path}; make it smaller") from None
    except Exception as error:  # each of Pillow's formats has errors of its own
        raise Damaged(f"the image {path} cannot be read: {error}") from None
