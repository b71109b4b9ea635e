"""The golden cases: weights and clips by formula, the authors' outputs from file."""

import fcntl
import os
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import authors_state
from fill import clip as make_clip

from export.exporter import Options, export_bundle
from mrcfa import MRCFA, load_weights, preset

_OPTIONS = {field.name for field in fields(Options)}
torch.set_num_threads(1)  # small tensors: more threads only wait for each other


@pytest.fixture(scope="session")
def clip() -> Callable[..., np.ndarray]:
    """`clip(frames, height, width, seed=0)`: uint8 frames (T, H, W, 3)."""
    return make_clip


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`checkpoint("b1")`: a file in the authors' layout with the golden weights."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def write(backbone: str) -> Path:
        path = folder / f"{backbone}.pth"
        if not path.exists():
            torch.save({"meta": {"epoch": 1}, "state_dict": authors_state(backbone)}, path)
        return path

    return write


@pytest.fixture(scope="session")
def golden_model(checkpoint: Callable[[str], Path]) -> Callable[[str], MRCFA]:
    """`golden_model("b1")`: the reference model with the golden weights."""
    models: dict[str, MRCFA] = {}

    def build(backbone: str) -> MRCFA:
        if backbone not in models:
            models[backbone] = MRCFA(preset("vspw", backbone))
            load_weights(models[backbone], checkpoint(backbone))
        return models[backbone]

    return build


@pytest.fixture(scope="session")
def bundle(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[[str], Path]
) -> Callable[..., Path]:
    """`bundle("b0", output="logits")`: exported once a session, at 96×160 unless told otherwise.

    VSPW bundles hold the golden weights; Cityscapes has none, so its are random.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the workers of one run share what each exports
        folder = folder.parent
    folder = folder / "bundles"
    folder.mkdir(exist_ok=True)

    def export(
        backbone: str,
        dataset: str = "vspw",
        output: str = "mask",
        precisions: tuple[str, ...] = ("fp32", "fp16"),
        **changes: Any,
    ) -> Path:
        key = repr((backbone, dataset, output, precisions, sorted(changes.items())))
        path = folder / f"{dataset}-{backbone}-{zlib.crc32(key.encode()):08x}"
        with (folder / f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                told = {name: changes.pop(name) for name in _OPTIONS & changes.keys()}
                config = preset(dataset, backbone, **{"size": (96, 160), **changes})
                weights = checkpoint(backbone) if dataset == "vspw" else None
                told = {"frame": config.size, "output": output, "precisions": precisions, **told}
                export_bundle(config, path, weights=weights, options=Options(**told))
        return path

    return export


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield
