"""Reading of still images."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mrcfa.errors import Damaged, RuntimeFailed
from mrcfa.machine.extras import load


def read_image(path: Path) -> NDArray[np.uint8]:
    """The pixels of an image file as upright RGB (h, w, 3); transparency is dropped."""
    pillow, operations = load("PIL.Image"), load("PIL.ImageOps")
    try:
        with pillow.open(path) as opened:
            image = operations.exif_transpose(opened)
            if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip to 8 bits
                image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            return np.array(image.convert("RGB"))
    except MemoryError:
        raise RuntimeFailed(f"memory ran out for the image {path}; make it smaller") from None
    except Exception as error:  # every format of Pillow raises its own errors
        raise Damaged(f"the image {path} cannot be read: {error}") from None
