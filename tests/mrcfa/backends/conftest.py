"""A GPU made of host memory, and bundles with engines that are their ONNX files."""

import gc
import shutil
import sys
from dataclasses import replace

import pytest
from fake_gpu import Driver, fake_tensorrt

from mrcfa.bundle import Bundle
from mrcfa.machine import Gpu
from mrcfa.manifest import Engine

VERSION = "1.7.1.116"
ENGINE = Engine("rtx", VERSION, (75,), "fp16", "fp16", None, "", "")


@pytest.fixture
def driver(monkeypatch, tmp_path_factory):
    """A Quadro RTX 6000 with TensorRT-RTX and an empty cache; nothing may be done that crashes."""
    device = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", device)
    module = fake_tensorrt(device, "tensorrt_rtx", VERSION)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(
        "mrcfa.machine.gpus", lambda: [Gpu(device.device_name, device.sm)] * device.devices
    )
    yield device
    gc.collect()
    assert device.misuses == []


@pytest.fixture
def built(bundle, tmp_path):
    """`built(precision="fp32")`: a bundle with one engine like that."""

    def build(output="mask", content=None, source=None, **facts):
        path = tmp_path / f"bundle{len(list(tmp_path.iterdir()))}"
        shutil.copytree(source or bundle("b0", output=output), path)
        opened, engine = Bundle.open(path), replace(ENGINE, **facts)
        engine = replace(engine, variant=engine.precision)
        graphs = opened.manifest.variants[engine.variant].graphs
        # The fake GPU runs what ONNX Runtime runs, so that masks can be compared bit by bit.
        contents = {
            f"{part}.{engine.precision}.engine": content or opened.file(graph.file).read_bytes()
            for part, graph in graphs.items()
        }
        encoder, decoder = contents
        opened.with_engine(replace(engine, encoder=encoder, decoder=decoder), contents)
        return path

    return build
