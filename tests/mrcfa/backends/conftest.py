"""A GPU made of host memory, and bundles with engines that are their ONNX files.

With `--gpu` both are real: the GPU of this machine, watched, and engines that are built for it.
"""

import gc
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_gpu import Driver, fake_tensorrt
from real_gpu import SIMULATED, real_gpu

from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Engine
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.target import Target, choose_targets
from mrcfa.errors import MrcfaError
from mrcfa.machine.hardware import Gpu

VERSION = "1.7.1.116"
ENGINE = Engine("rtx", VERSION, (75,), "fp16", "fp16", None, "", "")
Plans = Callable[[Path, str], tuple[Engine, dict[str, bytes]]]


@pytest.fixture
def driver(request, monkeypatch, tmp_path_factory):
    """A Quadro RTX 6000 with TensorRT-RTX and an empty cache; nothing may be done that crashes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    if request.config.getoption("gpu"):
        device = real_gpu()
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", device)
        with _collected():
            yield device
        return
    device = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", device)
    module = fake_tensorrt(device, "tensorrt_rtx", VERSION)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", module)
    monkeypatch.setattr(
        "mrcfa.machine.hardware.gpus", lambda: [Gpu(device.device_name, device.sm)] * device.devices
    )
    with _collected():
        yield device
    assert device.misuses == []


@contextmanager
def _collected() -> Iterator[None]:
    """Objects of a test end with it; the collector skips those that were there before."""
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


@pytest.fixture
def double(request):
    """The driver of tests that simulate something without telling it to the driver."""
    if request.config.getoption("gpu"):
        pytest.skip(SIMULATED)
    return request.getfixturevalue("driver")


@pytest.fixture
def plans(request, once) -> Plans:
    """`plans(bundle, "fp16")`: an engine, and the content of its two plans."""

    def of_the_double(source: Path, precision: str) -> tuple[Engine, dict[str, bytes]]:
        # The fake GPU runs what ONNX Runtime runs, so that masks can be compared bit by bit.
        opened = Bundle.open(source)
        graphs = opened.manifest.variants[precision].graphs
        contents = {part: opened.file(graph.file).read_bytes() for part, graph in graphs.items()}
        return replace(ENGINE, precision=precision, variant=precision), contents

    def of_this_gpu(source: Path, precision: str) -> tuple[Engine, dict[str, bytes]]:
        target = _target(precision)

        def make(path: Path) -> None:
            shutil.copytree(source, path)
            build_engines(path, target, BuildOptions(precision))

        opened = Bundle.open(once(f"{source.name}-{target.tag}-{precision}", make))
        (engine,) = opened.manifest.engines
        parts = {"encoder": engine.encoder, "decoder": engine.decoder}
        contents = {part: opened.file(name).read_bytes() for part, name in parts.items()}
        return replace(engine, layers=None), contents

    return of_this_gpu if request.config.getoption("gpu") else of_the_double


@pytest.fixture
def built(request, bundle, plans, tmp_path):
    """`built(precision="fp32")`: a bundle with one engine like that."""
    real = request.config.getoption("gpu")
    exported = {"fp32": {"variants": ("fp32", "fp32-gpu")}} if real else {}

    def build(output="mask", content=None, source=None, precision="fp16", **facts):
        path = tmp_path / f"bundle{len(list(tmp_path.iterdir()))}"
        backbone = "b1" if output == "logits" else "b0"
        source = source or bundle(backbone, output=output, **exported.get(precision, {}))
        engine, contents = plans(source, precision)
        shutil.copytree(source, path)
        contents = {
            f"{part}.{precision}.engine": content or plan for part, plan in contents.items()
        }
        encoder, decoder = contents
        engine = replace(engine, encoder=encoder, decoder=decoder, **facts)
        Bundle.open(path).with_engine(engine, contents)
        return path

    return build


def _target(precision: str) -> Target:
    """The target of engines here; the part that this machine lacks is the reason of a skip."""
    try:
        target, *_ = choose_targets(precision=precision)
    except MrcfaError as error:
        pytest.skip(f"not run: {error}")
    if precision == "fp32" and target.flavour is Flavour.RTX and 75 in target.sms:
        pytest.skip("not run: TensorRT-RTX has no FP32 matrix product for sm_75")
    return target
