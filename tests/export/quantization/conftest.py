"""Bundles with 8-bit variants, made from a few frames."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mrcfa.export.quantization.quantizer as quantizer
from mrcfa.data.world.scene import scene
from mrcfa.export.exporter import Traced
from mrcfa.export.quantization.quantizer import QuantizeOptions, quantize
from mrcfa.export.variants import Variant

SIZE = (96, 160)
FRAMES = 6
"""Enough for a memory of two frames, and one to spare."""


@pytest.fixture(scope="session")
def written() -> Callable[[Path, Sequence[np.ndarray]], Path]:
    """`written(folder, images)`: the folder, with an image of each."""

    def write(folder: Path, images: Sequence[np.ndarray]) -> Path:
        folder.mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / f"{number:03d}.png")
        return folder

    return write


@pytest.fixture(scope="session")
def images(once: Callable[..., Path], written: Callable[..., Path]) -> Path:
    """A folder of frames of a street."""
    shown = [image for image, _ in scene(FRAMES, SIZE, 7)]
    return once("street-images", lambda path: written(path, shown))


@pytest.fixture(scope="session")
def options(images: Path) -> Callable[..., QuantizeOptions]:
    def made(**changes: Any) -> QuantizeOptions:
        usual = {"data": str(images), "frames": FRAMES, "keep_loss": 100.0, "threads": 1}
        return QuantizeOptions(**{**usual, **changes})

    return made


@pytest.fixture(scope="session", autouse=True)
def _traced_once() -> Iterator[None]:
    """Both formats begin with the same graphs, and tracing takes most of a small quantization."""
    kept: dict[Any, Traced] = {}
    trace = quantizer.trace_variant

    def traced(variant: Variant, model: Any, options: Any, progress: Any) -> Traced:
        key = (model.config, options.frame, options.output, options.streams)
        if key not in kept:
            kept[key] = trace(variant, model, options, progress)
        return replace(kept[key], variant=variant)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantizer, "trace_variant", traced)
        yield


@pytest.fixture(scope="session")
def eight_bits(
    bundle: Callable[..., Path],
    once: Callable[..., Path],
    options: Callable[..., QuantizeOptions],
) -> Callable[[str], Path]:
    """`eight_bits("int8")`: a bundle of b0 with this variant and with two references."""

    def made(precision: str) -> Path:
        plain = bundle("b0", references=(2, 1), variants=("fp32",))

        def fill(path: Path) -> None:
            shutil.copytree(plain, path)
            with pytest.MonkeyPatch.context() as patch:
                if precision == "fp8":  # INT8's tests see it measured
                    patch.setattr(quantizer.Sensitivity, "of", lambda self, block: 0.0)
                quantize(path, options(precision=precision))

        return once(f"b0-{precision}", fill)

    return made
