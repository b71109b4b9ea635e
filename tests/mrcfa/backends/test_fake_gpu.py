"""The fake GPU against the real modules: whatever the code calls is there."""

import ast
import re
from pathlib import Path

import fake_gpu
import numpy as np
import pytest
from fake_gpu import Driver
from real_gpu import RealGpu

import mrcfa
import mrcfa.engines
from mrcfa.machine.hardware import Gpu


def sources():
    files = [*Path(mrcfa.engines.__path__[0]).glob("*.py"), *Path(mrcfa.__path__[0]).rglob("*.py")]
    return [path.read_text(encoding="utf-8") for path in files]


def test_every_tensorrt_name_in_use_is_one_of_the_real_module():
    trt = pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    used = {
        node.attr
        for source in sources()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("trt", "self._trt")
    }
    assert {"Builder", "OnnxParser", "Runtime", "get_plugin_registry"} <= used
    assert used - set(dir(trt)) == set()
    for double in (
        fake_gpu.Runtime,
        fake_gpu.ICudaEngine,
        fake_gpu.IExecutionContext,
        fake_gpu.IPluginRegistry,
        fake_gpu.ILogger,
        fake_gpu.IRuntimeCache,
        fake_gpu.IRuntimeConfig,
        fake_gpu.ExecutionContextAllocationStrategy,
        fake_gpu.ProfilingVerbosity,
    ):
        names = {name for name in vars(double) if not name.startswith("_")} - {"driver"}
        assert names - set(dir(getattr(trt, double.__name__))) == set()


def test_every_cuda_function_in_use_is_one_of_the_real_driver_and_of_the_double():
    real = pytest.importorskip("cuda.bindings.driver", reason="not run: no cuda-python")
    used = {name for source in sources() for name in re.findall(r'"(cu[A-Z]\w+)"', source)}
    assert {"cuMemAlloc", "cuGraphLaunch", "cuCtxPushCurrent"} <= used
    assert used - set(dir(real)) == set()
    assert used - set(dir(Driver)) == set()


def test_on_a_real_gpu_logits_agree_by_their_classes():
    real = RealGpu(Driver(), Gpu("NVIDIA L4", 89))
    logits = np.broadcast_to(np.arange(3.0)[:, None, None], (3, 4, 5))
    real.check([logits], [logits + 0.1])
    with pytest.raises(AssertionError):
        real.check(logits, logits[::-1])
