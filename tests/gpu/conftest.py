"""A real GPU with a real TensorRT; without them these tests say that they were not run."""

import shutil
from pathlib import Path

import pytest

from engines.builder import BuildOptions, build_engines
from engines.target import choose_targets
from mrcfa import machine
from mrcfa.errors import MrcfaError


@pytest.fixture(scope="session")
def engine(once, bundle):
    """A small bundle with an engine for the GPU of this machine, and the backend that takes it."""
    if not machine.gpus():
        pytest.skip("not run: no GPU is visible here")
    try:
        target, *_ = choose_targets()
    except MrcfaError as error:
        pytest.skip(f"not run: {error}")

    def make(path: Path) -> None:
        shutil.copytree(bundle("b0"), path)
        build_engines(path, target, BuildOptions())

    return once("real-engine", make), f"tensorrt:{target.flavour.value}"
