"""The TensorRT backend on a GPU made of host memory; its engines are the bundle's ONNX files."""

import ast
import gc
import re
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import fake_gpu
import numpy as np
import pytest
from fake_gpu import Driver, fake_tensorrt

import engines
import mrcfa
from mrcfa import Stream
from mrcfa.backends import Unfit, open_backend
from mrcfa.bundle import Bundle, Engine
from mrcfa.errors import MrcfaError
from mrcfa.flavours import PLUGIN, PLUGIN_NAME

VERSION = "1.7.1.116"
ENGINE = Engine("rtx", VERSION, (75,), "fp16", None, "", "", None)


@pytest.fixture
def driver(monkeypatch):
    """A Quadro RTX 6000 with TensorRT-RTX."""
    device = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", device)
    module = fake_tensorrt(device, "tensorrt_rtx", VERSION)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", module)
    return device


@pytest.fixture
def built(bundle, tmp_path):
    """`built(precision="fp32")`: a bundle with one engine like that."""

    def build(output="mask", content=None, **facts):
        path = tmp_path / f"bundle{len(list(tmp_path.iterdir()))}"
        shutil.copytree(bundle("b0", output=output), path)
        opened, engine = Bundle.open(path), replace(ENGINE, **facts)
        graphs = opened.manifest.graphs[engine.precision]
        # The fake GPU runs what ONNX Runtime runs, so that masks can be compared bit by bit.
        contents = {
            f"{part}.{engine.precision}.engine": content
            or opened.file(graph.cpu or graph.file).read_bytes()
            for part, graph in graphs.items()
        }
        encoder, decoder = contents
        opened.with_engine(replace(engine, encoder=encoder, decoder=decoder), contents)
        return path

    return build


def expected(path, frames, precision="fp16", reset_at=None):
    stream = Stream(path, "onnxruntime:cpu", precision=precision, threads=1)
    return segmented(stream, frames, reset_at)


def segmented(stream, frames, reset_at=None):
    masks = []
    for number, frame in enumerate(frames):
        if number == reset_at:
            stream.reset()
        masks.append(stream(frame))
    return np.stack(masks)


class OnGpu:
    """A frame in the fake device's memory, which the default stream writes when waited for."""

    def __init__(self, driver, image, **facts):
        driver.contexts.append(driver.PRIMARY)
        _, self.address = driver.cuMemAlloc(image.nbytes)
        driver.contexts.pop()
        fill = driver.view(self.address, image.nbytes)
        driver.streams[driver.LEGACY].add(lambda: fill.__setitem__(slice(None), image.ravel()))
        self.__cuda_array_interface__ = {
            "version": 2,
            "shape": image.shape,
            "typestr": image.dtype.str,
            "data": (self.address, False),
            **facts,
        }


def read_back(driver, mask):
    facts = mask.__cuda_array_interface__
    (address, _), shape = facts["data"], facts["shape"]
    return driver.view(address, int(np.prod(shape))).reshape(shape).copy()


@pytest.mark.parametrize("graphs", [False, True], ids=["launched", "graphs"])
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_40_frames_with_a_reset_are_bit_identical_to_onnx_runtime(
    precision, graphs, driver, built, clip
):
    path, frames = built(precision=precision), clip(40, 96, 160)
    stream = Stream(path, "tensorrt", graphs=graphs)
    np.testing.assert_array_equal(
        segmented(stream, frames, reset_at=17), expected(path, frames, precision, reset_at=17)
    )
    assert driver.launches == (2 * 40 - 3 if graphs else 0)
    assert len(driver.graphs) == (3 if graphs else 0)  # the encoder, the decoder in each parity


def test_frames_and_masks_stay_on_the_gpu(driver, built, clip):
    path, frames = built(), clip(6, 96, 160)
    stream = Stream(path, "tensorrt", device_masks=True)
    masks = [read_back(driver, stream(OnGpu(driver, frame))) for frame in frames]
    np.testing.assert_array_equal(masks, expected(path, frames))


def test_a_mask_on_the_gpu_is_a_uint8_array_of_the_frames_size(driver, built, clip):
    mask = Stream(built(), "tensorrt", device_masks=True)(clip(1, 96, 160)[0])
    facts = mask.__cuda_array_interface__
    assert (facts["shape"], facts["typestr"], facts["strides"]) == ((96, 160), "|u1", None)
    assert facts["data"] == (mask.ptr, False)


def test_streams_in_threads_of_their_own_do_not_disturb_each_other(driver, built, clip):
    path = built()
    clips = [clip(12, 96, 160, seed=seed) for seed in range(3)]
    masks = [np.empty(0)] * len(clips)
    streams = [Stream(path, "tensorrt", graphs=True) for _ in clips]

    def work(number):
        masks[number] = segmented(streams[number], clips[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clips))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for frames, found in zip(clips, masks, strict=True):
        np.testing.assert_array_equal(found, expected(path, frames))


def test_encoder_and_decoder_can_be_called_apart(driver, built, clip):
    path, frames = built(), clip(12, 96, 160)
    backend = open_backend(Bundle.open(path), "tensorrt")
    state, masks = backend.start(), []
    encoded = [backend.encode(frame) for frame in frames]
    for features in encoded:
        outputs, state = backend.decode(features, state)
        masks.append(outputs["mask"])
    np.testing.assert_array_equal(masks, expected(path, frames))


def test_a_timed_step_tells_copies_encoder_and_decoder_apart(driver, built, clip):
    path, frames = built(), clip(3, 96, 160)
    backend = open_backend(Bundle.open(path), "tensorrt")
    state, masks = backend.start(), []
    for frame in frames:
        outputs, state, seconds = backend.timed_step(frame, state)
        masks.append(outputs["mask"])
        assert seconds == dict.fromkeys(("upload", "encoder", "decoder", "download"), 0.002)
    np.testing.assert_array_equal(masks, expected(path, frames))


def test_logits_come_out_as_the_graph_computes_them(driver, built, clip):
    path, frames = built(output="logits"), clip(4, 96, 160)
    backends = [
        open_backend(Bundle.open(path), "tensorrt"),
        open_backend(Bundle.open(path), "onnxruntime:cpu", precision="fp16", threads=1),
    ]
    states = [backend.start() for backend in backends]
    for frame in frames:
        answers = []
        for number, backend in enumerate(backends):
            outputs, states[number] = backend.step(frame, states[number])
            answers.append(outputs["logits"])
        np.testing.assert_array_equal(*answers)


def test_a_reset_takes_no_new_memory_and_the_last_stream_frees_all(driver, built, clip):
    stream = Stream(built(), "tensorrt", graphs=True)
    for frame in clip(6, 96, 160):
        stream(frame)
    before = driver.device_bytes()
    stream.reset()
    assert driver.device_bytes() == before > 0
    stream.close()
    gc.collect()
    assert not driver.memory
    assert not driver.graphs


def test_it_works_in_the_context_that_is_current_and_from_threads_without_one(driver, built, clip):
    path, frames = built(), clip(4, 96, 160)
    driver.contexts.append(0xABC)  # as pycuda.autoinit does
    stream = Stream(path, "tensorrt")
    masks = []
    thread = threading.Thread(target=lambda: masks.extend(segmented(stream, frames)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(masks, expected(path, frames))
    assert {context for _, _, context in driver.memory.values()} == {0xABC}
    assert driver.contexts == [0xABC]


def test_auto_prefers_an_engine_that_fits_and_falls_back_where_none_does(driver, built, clip):
    path = built()
    assert Stream(path).backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000)"
    driver.sm = 86
    assert Stream(path, precision="fp32").backend == "onnxruntime (CPU, fp32)"


def test_an_engine_is_chosen_by_name_flavour_or_precision_and_fp16_comes_first(driver, built):
    path = built()
    opened = Bundle.open(path)
    files = {
        part: opened.file(opened.graph("fp32", part).file).read_bytes()
        for part in ("encoder", "decoder")
    }
    opened.with_engine(
        replace(ENGINE, precision="fp32", encoder="encoder", decoder="decoder"), files
    )
    assert "fp16" in Stream(path, "tensorrt").backend
    assert "fp32" in Stream(path, "tensorrt", precision="fp32").backend
    assert "fp32" in Stream(path, "tensorrt:rtx fp32 sm75").backend
    assert "fp16" in Stream(path, "tensorrt:rtx").backend
    with pytest.raises(Unfit, match="no engine tensorrt "):
        Stream(path, "tensorrt:tensorrt")


def test_engines_of_the_other_flavour_need_the_other_module(driver, built, monkeypatch):
    path = built(flavour="tensorrt", tensorrt="10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(driver, "tensorrt", "10.3.0"))
    assert Stream(path, "tensorrt").backend == "tensorrt (tensorrt fp16 sm75, Quadro RTX 6000)"


def test_another_gpu_is_named_with_the_one_that_the_engine_is_for(driver, built):
    driver.device_name, driver.sm = "NVIDIA L4", 89
    with pytest.raises(Unfit, match=r"built for sm_75 and NVIDIA L4 is sm_89; .* --sm 89"):
        Stream(built(), "tensorrt")


def test_another_version_is_named_with_the_one_that_built_the_engine(driver, built):
    with pytest.raises(Unfit, match=r"TensorRT-RTX 1\.6\.0 and this machine has 1\.7\.1\.116"):
        Stream(built(tensorrt="1.6.0"), "tensorrt")


def test_a_version_compatible_engine_loads_within_its_major_version(driver, built):
    assert Stream(built(tensorrt="1.6.0", version_compatible=True), "tensorrt").backend
    with pytest.raises(Unfit, match=r"2\.0\.0 and this machine has"):
        Stream(built(tensorrt="2.0.0", version_compatible=True), "tensorrt")


def test_an_engine_with_a_plugin_wants_its_library(driver, built, tmp_path, monkeypatch):
    path = built(plugin=PLUGIN_NAME)
    with pytest.raises(Unfit, match=r"needs a plugin: the plugin mrcfa::SelectTokens 1 is not"):
        Stream(path, "tensorrt")
    with pytest.raises(Unfit, match=r"nowhere\.so does not exist"):
        Stream(path, "tensorrt", plugin_library="nowhere.so")
    monkeypatch.setenv("MRCFA_PLUGIN_LIBRARY", str(path / "manifest.json"))
    with pytest.raises(Unfit, match=r"manifest\.json does not provide mrcfa::SelectTokens 1"):
        Stream(path, "tensorrt")
    sys.modules["tensorrt_rtx"].get_plugin_registry().creators.add(PLUGIN)
    assert Stream(path, "tensorrt").backend


def test_a_truncated_engine_is_refused_before_it_reaches_the_gpu(driver, built):
    path = built()
    with (path / "decoder.fp16.engine").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(MrcfaError, match=r"decoder\.fp16\.engine is not the file"):
        Stream(path, "tensorrt")


def test_what_tensorrt_cannot_load_is_told_in_its_own_words(driver, built):
    with pytest.raises(Unfit, match=r"cannot load .*engine, built with .*: Serialization: bad"):
        Stream(built(content=b"no engine"), "tensorrt")


def test_no_device_and_no_engine_are_told(driver, built, bundle):
    driver.devices = 0
    with pytest.raises(Unfit, match=r"no GPU can be used here: .* CUDA_ERROR_NO_DEVICE"):
        Stream(built(), "tensorrt")
    driver.devices = 1
    with pytest.raises(Unfit, match="has no engine yet"):
        Stream(bundle("b0"), "tensorrt")


def test_running_out_of_device_memory_is_one_sentence(driver, built, monkeypatch):
    full = fake_gpu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr(driver, "cuMemAlloc", lambda nbytes: (full, 0), raising=False)
    with pytest.raises(MrcfaError, match="cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"):
        Stream(built(), "tensorrt")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"shape": (96, 158, 3)}, r"uint8 of shape \(96, 160, 3\), not \|u1 of \(96, 158, 3\)"),
        ({"typestr": "<f4"}, "not <f4"),
        ({"strides": (512, 3, 1)}, "must be contiguous"),
    ],
)
def test_frames_on_the_gpu_that_do_not_fit_are_refused(facts, reason, driver, built, clip):
    stream = Stream(built(), "tensorrt")
    with pytest.raises(MrcfaError, match=reason):
        stream(OnGpu(driver, clip(1, 96, 160)[0], **facts))


def test_other_backends_take_no_frames_on_the_gpu(driver, built, clip):
    stream = Stream(built(), "onnxruntime:cpu")
    with pytest.raises(MrcfaError, match="takes no frames on the GPU"):
        stream(OnGpu(driver, clip(1, 96, 160)[0]))


def test_masks_on_the_gpu_are_masks_of_the_bundles_size(driver, built, clip):
    with pytest.raises(MrcfaError, match="answers with logits"):
        Stream(built(output="logits"), "tensorrt", device_masks=True)
    with pytest.raises(MrcfaError, match="export with --frame 64x64"):
        Stream(built(), "tensorrt", device_masks=True)(clip(1, 64, 64)[0])
    with pytest.raises(Unfit, match="onnxruntime has no option device_masks"):
        Stream(built(), "onnxruntime", device_masks=True)


def sources():
    files = [*Path(engines.__path__[0]).glob("*.py"), *Path(mrcfa.__path__[0]).rglob("*.py")]
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
    ):
        ours = {"driver", "fail", "run"} if double is not fake_gpu.ILogger else set()
        names = {name for name in vars(double) if not name.startswith("_")} - ours
        assert names - set(dir(getattr(trt, double.__name__))) == set()


def test_every_cuda_function_in_use_is_one_of_the_real_driver_and_of_the_double():
    real = pytest.importorskip("cuda.bindings.driver", reason="not run: no cuda-python")
    used = {name for source in sources() for name in re.findall(r'"(cu[A-Z]\w+)"', source)}
    assert {"cuMemAlloc", "cuGraphLaunch", "cuCtxPushCurrent"} <= used
    assert used - set(dir(real)) == set()
    assert used - set(dir(Driver)) == set()
