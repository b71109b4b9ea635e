"""The real cuda.bindings over a stub driver: what the doubles of the whole module cannot show.

Arguments reach C and come back, device and pinned memory hold what was copied, a graph has the
nodes that were captured, and nothing is left unreleased, whichever thread lets go of it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parents[2] / "doubles" / "stub_libcuda.c"
VERSION_12 = Path(__file__).parents[3] / "build" / "cuda-bindings-12"
START = """
import ctypes, gc, sys, threading
import numpy as np
from mrcfa.backends.cuda import Cuda, CudaStream, DeviceArray, pinned_array
stub = ctypes.CDLL("libcuda.so.1")
cuda = Cuda()
assert cuda.gpu.name == "Stub GPU" and cuda.gpu.sm == 86, cuda.gpu
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1 that needs no GPU."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("not run: no gcc")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-shared", "-fPIC", "-O1", "-w", STUB, "-o", folder / "libcuda.so.1"]
    subprocess.run([*command, "-ldl"], check=True)
    return folder


@pytest.fixture(params=["installed", pytest.param("12", marks=pytest.mark.thorough)])
def run(request: pytest.FixtureRequest, driver: Path):
    """`run(code)`: code after `START` in a fresh process, with the bindings of one CUDA version."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver)}
    if request.param == "12":
        if not VERSION_12.is_dir():
            pytest.skip("not run: cuda.bindings 12 is not in build/cuda-bindings-12")
        environment["PYTHONPATH"] = str(VERSION_12)
    version = "12" if request.param == "12" else ""

    def done(code: str, **more: str) -> None:
        check = f"import cuda.bindings; assert cuda.bindings.__version__.startswith('{version}')\n"
        process = subprocess.run(
            [sys.executable, "-c", check + START + code],
            env={**environment, **more},
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr

    return done


def test_bytes_go_to_the_device_and_back_and_all_memory_is_released(run):
    run("""
with cuda.current():
    stream = CudaStream(cuda)
    device, other = (DeviceArray(cuda, (3, 5), "int32") for _ in range(2))
    there, back = (pinned_array(cuda, (3, 5), "int32") for _ in range(2))
    there[...] = np.arange(15).reshape(3, 5)
    stream.upload(device, there)
    stream.copy(other, device)
    stream.zero(device.rows()[1])
    stream.download(back, other)
    stream.synchronize()
    assert (back == there).all()
    stream.download(back, device)
    stream.synchronize()
    assert (back[1] == 0).all() and (back[2] == there[2]).all()
    begun, ended = stream.mark(timed=True), stream.mark(timed=True)
    ended.synchronize()
    assert ended.seconds_since(begun) >= 0
    assert stub.stub_live() == 7
holder = [stream, device, other, there, back, begun, ended]
del stream, device, other, there, back, begun, ended
thread = threading.Thread(target=holder.clear)
thread.start(); thread.join(); gc.collect()
assert stub.stub_live() == 0, stub.stub_live()
""")


def test_a_captured_graph_has_its_nodes_and_repeats_them(run):
    run("""
with cuda.current():
    stream = CudaStream(cuda)
    device = DeviceArray(cuda, (4,), "uint8")
    host, back = (pinned_array(cuda, (4,), "uint8") for _ in range(2))
    def work():
        stream.upload(device, host)
        stream.download(back, device)
    graph = stream.capture(work)
    assert graph.nodes == 2
    host[...] = 7
    assert not back.any()  # recorded, not run
    stream.launch(graph)
    stream.synchronize()
    assert (back == 7).all()
    try:
        stream.capture(lambda: 1 / 0)
    except ZeroDivisionError:
        pass
    alive = stub.stub_live()
    del graph
    gc.collect()
    assert stub.stub_live() == alive - 1
""")


def test_an_empty_graph_is_an_error_that_leaves_nothing_behind(run):
    run("""
from mrcfa.backends.cuda import CudaError
with cuda.current():
    stream = CudaStream(cuda)
    try:
        stream.capture(lambda: None)
    except CudaError as error:
        assert "empty" in str(error), error
    else:
        raise SystemExit("it was recorded")
    assert stub.stub_live() == 1
""")


def test_memory_that_nobody_uses_any_more_is_freed_after_a_capture_and_not_during_it(run):
    run("""
from mrcfa.backends.cuda import CudaError
with cuda.current():
    stream, device = CudaStream(cuda), DeviceArray(cuda, (4,), "uint8")
    ended = [DeviceArray(cuda, (4,), "uint8") for _ in range(3)]
    ended[0].itself = ended[0]  # only the collector ends it
    alive = stub.stub_live()
    def work():
        stream.zero(device)
        for _ in range(2):
            ended.pop()
        thread = threading.Thread(target=ended.clear)
        thread.start(); thread.join()
        [[] for _ in range(100_000)]  # more than a collection waits for
        assert stub.stub_live() == alive + 1  # the recorded graph
    graph = stream.capture(work)
    gc.collect()
    assert stub.stub_live() == alive - 3 + 1
    kept = DeviceArray(cuda, (4,), "uint8")
    for call in (("cuMemFree", kept.ptr), ("cuCtxSynchronize",)):  # the stub does refuse
        def work():
            stream.zero(device)
            try:
                cuda.call(*call)
            except CudaError as error:
                assert error.code == "STREAM_CAPTURE_UNSUPPORTED", error
        try:
            stream.capture(work)
        except CudaError as error:
            assert error.code == "STREAM_CAPTURE_INVALIDATED", error
        else:
            raise SystemExit(call)
""")


def test_a_frame_on_another_gpu_is_refused(run):
    run(
        """
from mrcfa.backends.cuda import DeviceFrame
from mrcfa.errors import Mismatch
other = Cuda(1)
assert (cuda.index, other.index, cuda.alone) == (0, 1, False)
with other.current():
    frame = DeviceArray(other, (2, 2, 3), "uint8")
DeviceFrame.of(frame, (2, 2, 3), other)
try:
    DeviceFrame.of(frame, (2, 2, 3), cuda)
except Mismatch as error:
    assert "GPU 1" in str(error) and "GPU 0" in str(error), error
else:
    raise SystemExit("it was taken")
""",
        STUB_DEVICES="2",
    )


def test_a_frame_of_another_context_is_waited_for_by_an_event_of_that_context(run):
    run("""
from mrcfa.backends.cuda import DeviceFrame
from mrcfa.backends.cuda_context import CudaError
with cuda.current():
    stream, mine = CudaStream(cuda), DeviceArray(cuda, (2, 2, 3), "uint8")
pycudas = cuda.kind("CUcontext")(int(cuda._context) + 16)
with cuda.current(pycudas):
    other = Cuda()
    frame, side = DeviceArray(other, (2, 2, 3), "uint8"), CudaStream(other)
assert int(cuda.owner_of(frame.ptr)) == int(pycudas) != int(cuda.owner_of(mine.ptr))
with cuda.current():
    before = stub.stub_live()
    for written_on in (1, 2, side.address):
        stream.copy(mine, DeviceFrame(frame.ptr, written_on))
    assert stub.stub_live() == before
    assert int(cuda.call("cuCtxGetCurrent")) == int(cuda._context)
    try:  # the stub does refuse
        cuda.call("cuEventRecord", stream.mark().handle, cuda.kind("CUstream")(side.address))
    except CudaError as error:
        assert error.code == "INVALID_HANDLE", error
    else:
        raise SystemExit("it was recorded")
""")


def test_what_is_open_at_the_interpreters_exit_is_released(run):
    run("""
import atexit
def check():
    import os
    os._exit(0 if stub.stub_live() == 0 else 9)
kept = []
with cuda.current():
    kept += [CudaStream(cuda), DeviceArray(cuda, (9,), "uint8"), pinned_array(cuda, (9,), "uint8")]
atexit._run_exitfuncs()
check()
""")


def test_a_driver_call_that_fails_is_an_error_that_names_it(run):
    run("""
from mrcfa.backends.cuda import CudaError
try:
    DeviceArray(cuda, (9,), "uint8")  # no context is current
except CudaError as error:
    assert "cuMemAlloc" in str(error) and error.code == "INVALID_CONTEXT", error
else:
    raise SystemExit("it did not fail")
""")
