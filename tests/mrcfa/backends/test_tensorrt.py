"""The TensorRT backend on a GPU made of host memory; its engines are the bundle's ONNX files."""

import gc
import sys
import threading

import fake_gpu
import numpy as np
import pytest
from fake_gpu import IExecutionContext, fake_tensorrt
from naming import naming
from on_gpu import OnGpu, read_back

from mrcfa import Stream
from mrcfa.backends import Options, Unfit, open_backend
from mrcfa.backends.cuda import Cuda, CudaError, DeviceArray
from mrcfa.bundle import Bundle
from mrcfa.errors import InvalidValue, Mismatch, Unsupported
from mrcfa.selftest.expected import WARM_UP


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


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_frames_with_a_reset_are_bit_identical_to_onnx_runtime(precision, driver, built, clip):
    path, frames = built(precision=precision), clip(24, 96, 160)
    wanted = expected(path, frames, precision, reset_at=13)
    launched = Stream(path, "tensorrt", cuda_graphs=False)
    driver.check(segmented(launched, frames, reset_at=13), wanted)
    assert (driver.launches, len(driver.graphs)) == (0, 0)
    recorded = Stream(path, "tensorrt")
    driver.check(segmented(recorded, frames, reset_at=13), wanted)
    assert driver.launches == 2 * 24 - 3
    assert len(driver.graphs) == 3  # encoder, decoder in each turn


def test_frames_and_masks_stay_on_the_gpu(driver, built, clip):
    path, frames = built(), clip(6, 96, 160)
    stream = Stream(path, "tensorrt", device_masks=True)
    masks = [read_back(stream(OnGpu(frame))) for frame in frames]
    driver.check(masks, expected(path, frames))


def test_a_mask_on_the_gpu_is_a_uint8_array_of_the_frames_size(driver, built, clip):
    mask = Stream(built(), "tensorrt", device_masks=True)(clip(1, 96, 160)[0])
    facts = mask.__cuda_array_interface__
    assert (facts["shape"], facts["typestr"], facts["strides"]) == ((96, 160), "|u1", None)
    assert facts["data"] == (mask.ptr, False)


@pytest.mark.thorough
def test_streams_in_threads_of_their_own_do_not_disturb_each_other(driver, built, clip):
    path = built()
    clips = [clip(12, 96, 160, seed=seed) for seed in range(3)]
    masks = [np.empty(0)] * len(clips)
    streams = [Stream(path, "tensorrt") for _ in clips]

    def work(number):
        masks[number] = segmented(streams[number], clips[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clips))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for frames, found in zip(clips, masks, strict=True):
        driver.check(found, expected(path, frames))


def test_a_lane_is_given_back_by_a_call_and_serves_the_next_stream(driver, built, clip):
    path, frames = built(), clip(4, 96, 160)
    backend = open_backend(Bundle.open(path), "tensorrt")
    first = Stream(path, "tensorrt")
    segmented(first, frames)
    taken = driver.device_bytes()
    first.close()
    second = Stream(path, "tensorrt")
    assert driver.device_bytes() == taken
    driver.check(segmented(second, frames), expected(path, frames))
    assert driver.device_bytes() == taken
    assert backend.name == second.backend


def test_a_timed_step_tells_copies_encoder_and_decoder_apart(driver, built, clip):
    path, frames = built(), clip(3, 96, 160)
    backend = open_backend(Bundle.open(path), "tensorrt")
    state, masks = backend.start(), []
    for frame in frames:
        outputs, state, seconds = backend.timed_step(frame, state)
        masks.append(outputs["mask"])
        assert [*seconds] == ["upload", "encoder", "decoder", "download"]
        for each in seconds.values():
            driver.check_seconds(each)
    driver.check(masks, expected(path, frames))


def test_logits_come_out_as_the_graph_computes_them(driver, built, clip):
    path, frames = built(output="logits"), clip(4, 96, 160)
    backends = [
        open_backend(Bundle.open(path), "tensorrt"),
        open_backend(Bundle.open(path), "onnxruntime:cpu", Options("fp16", threads=1)),
    ]
    states = [backend.start() for backend in backends]
    for frame in frames:
        answers = []
        for number, backend in enumerate(backends):
            outputs, states[number] = backend.step(frame, states[number])
            answers.append(outputs["logits"])
        driver.check(*answers)


def test_a_reset_takes_no_new_memory_and_the_last_stream_frees_all(driver, built, clip):
    stream = Stream(built(), "tensorrt")
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


def cannot_record(driver, monkeypatch):
    driver.capture_fails = True


def may_not_record(driver, monkeypatch):
    driver.capturable = False


def records_nothing(driver, monkeypatch):
    driver.captures_nothing = True


def cannot_instantiate(driver, monkeypatch):
    refused = fake_gpu.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    monkeypatch.setattr(
        driver, "cuGraphInstantiate", lambda graph, flags: (refused, None), raising=False
    )


@pytest.mark.parametrize(
    "happens", [cannot_record, may_not_record, records_nothing, cannot_instantiate]
)
def test_where_graphs_cannot_be_recorded_it_goes_on_without_and_says_so(
    happens, driver, built, clip, monkeypatch, capsys
):
    happens(driver, monkeypatch)
    path, frames = built(), clip(6, 96, 160)
    stream = Stream(path, "tensorrt")
    assert stream.backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000)"
    np.testing.assert_array_equal(segmented(stream, frames), expected(path, frames))
    assert stream.backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000, without CUDA graphs)"
    assert capsys.readouterr().err.count("CUDA graphs") == 1
    assert driver.launches == 0
    assert not driver.graphs
    with Stream(path, "tensorrt", cuda_graphs=False) as plain:
        assert plain.backend == stream.backend


def test_tensorrt_itself_is_recorded_without_being_asked(double, built, clip, monkeypatch):
    double.capturable = False  # what only TensorRT-RTX can say
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(double, "tensorrt", "10.3.0"))
    stream = Stream(built(flavour="tensorrt", tensorrt="10.3.0"), "tensorrt")
    segmented(stream, clip(4, 96, 160))
    assert double.launches > 0


def test_encoder_and_decoder_share_one_scratch_memory_and_stay_silent_in_nvtx(driver, built):
    path = built()
    first = Stream(path, "tensorrt")
    facts = {(each._scratch, each.nvtx_verbosity.name) for each in driver.executions}
    assert [silence for _, silence in facts] == ["NONE"]
    one = driver.device_bytes()
    other = Stream(path, "tensorrt")
    assert driver.device_bytes() == 2 * one  # engines are shared; a stream has its lane
    other.close()
    first.close()


def test_each_graph_has_a_context_and_without_graphs_each_part_has_one(driver, built, clip):
    path, frames = built(), clip(6, 96, 160)
    with Stream(path, "tensorrt") as recorded:
        segmented(recorded, frames)
        assert len(driver.executions) == len(driver.graphs) == 3
        for frame in frames:  # two in flight: the encoder has two slots
            recorded.submit(frame)
            recorded.result()
        assert len(driver.executions) == len(driver.graphs) == 4
    with Stream(path, "tensorrt", cuda_graphs=False) as launched:
        launched.submit(frames[0])
        launched.result()
        assert len(driver.executions) == 2


def test_no_graph_is_recorded_after_the_frames_that_the_self_test_leaves_out(driver, built, clip):
    stream = Stream(built(), "tensorrt")
    frames = clip(WARM_UP + 6, 96, 160)
    segmented(stream, frames[:WARM_UP])
    before = set(driver.graphs)
    segmented(stream, frames[WARM_UP:])
    assert set(driver.graphs) == before


def interrupted(monkeypatch, meanwhile):
    """Call `meanwhile` while the first graph is recorded; True in the list once that happened."""
    happened, real = [], IExecutionContext.execute_async_v3

    def execute(self, stream_handle):
        if self._driver.streams[stream_handle].recording is not None and not happened:
            happened.append(True)
            meanwhile()
        return real(self, stream_handle)

    monkeypatch.setattr(IExecutionContext, "execute_async_v3", execute)
    return happened


@pytest.mark.parametrize("thread", [False, True], ids=["same thread", "other thread"])
@pytest.mark.parametrize("what", ["memory", "stream"])
def test_nothing_that_ends_while_a_graph_is_recorded_harms_it(
    thread, what, double, built, clip, monkeypatch
):
    path, frames = built(), clip(5, 96, 160)
    if what == "memory":
        cuda = Cuda()
        with cuda.current():
            ended = [DeviceArray(cuda, (9,), "uint8")]
    else:
        ended = [Stream(built(precision="fp32"), "tensorrt")]  # its contexts end with it
    stream = Stream(path, "tensorrt")
    taken = double.device_bytes()

    def end():
        if thread:
            other = threading.Thread(target=ended.clear)
            other.start()
            other.join()
        else:
            ended.clear()

    happened = interrupted(monkeypatch, end)
    np.testing.assert_array_equal(segmented(stream, frames), expected(path, frames))
    assert happened
    assert stream.backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000)"
    assert double.device_bytes() < taken


def test_no_context_is_made_in_another_thread_while_a_graph_is_recorded(
    double, built, clip, monkeypatch
):
    path, frames = built(), clip(5, 96, 160)
    stream, opened = Stream(path, "tensorrt"), []
    thread = threading.Thread(target=lambda: opened.append(Stream(path, "tensorrt")))

    def open_another():
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "it did not wait for the recording"

    happened = interrupted(monkeypatch, open_another)
    np.testing.assert_array_equal(segmented(stream, frames), expected(path, frames))
    thread.join()
    assert happened
    assert len(opened) == 1
    assert stream.backend == "tensorrt (rtx fp16 sm75, Quadro RTX 6000)"


def test_pythons_collector_is_off_while_a_graph_is_recorded_and_on_again(
    double, built, clip, monkeypatch
):
    stream, states = Stream(built(), "tensorrt"), []
    happened = interrupted(monkeypatch, lambda: states.append(gc.isenabled()))
    segmented(stream, clip(3, 96, 160))
    assert happened
    assert states == [False]
    assert gc.isenabled()


def test_device_is_the_gpu_whatever_context_is_current(driver, built, clip):
    driver.devices = 2
    path, frames = built(), clip(2, 96, 160)
    driver.contexts.append(driver.PRIMARY)  # as torch.cuda.set_device(0) does
    stream = Stream(path, "tensorrt", device=1)
    segmented(stream, frames)
    assert {context for _, _, context in driver.memory.values()} == {driver.PRIMARY + 1}
    stream.close()
    driver.contexts[:] = [0xABC]  # pycuda's own, on GPU 0
    for device in (0, None):
        stream = Stream(path, "tensorrt", device=device)
        assert {context for _, _, context in driver.memory.values()} == {0xABC}
        stream.close()
    driver.contexts.clear()


def test_streams_share_a_backend_unless_another_context_is_current(driver, built):
    path = built()
    driver.contexts.append(0xABC)
    first = Stream(path, "tensorrt")
    assert Stream(path, "tensorrt")._backend is first._backend
    driver.contexts[:] = []  # a thread that has none
    assert Stream(path, "tensorrt")._backend is first._backend
    driver.contexts[:] = [0xDEF]
    other = Stream(path, "tensorrt")
    assert other._backend is not first._backend
    assert {context for _, _, context in driver.memory.values()} == {0xABC, 0xDEF}
    driver.contexts.clear()


def test_a_driver_without_a_function_of_cuda_python_is_told(driver, built, clip, monkeypatch):
    def missing(start, end):
        raise RuntimeError('Function "cuEventElapsedTime_v2" not found')

    monkeypatch.setattr(driver, "cuEventElapsedTime", missing, raising=False)
    backend = open_backend(Bundle.open(built()), "tensorrt")
    things = ("cuEventElapsedTime", '"cuEventElapsedTime_v2" not found')
    with pytest.raises(CudaError, match=naming(*things)):
        backend.timed_step(clip(1, 96, 160)[0], backend.start())


def test_running_out_of_device_memory_is_one_sentence(driver, built, monkeypatch):
    full = fake_gpu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr(driver, "cuMemAlloc", lambda nbytes: (full, 0), raising=False)
    with pytest.raises(CudaError, match=naming("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY")):
        Stream(built(), "tensorrt")


@pytest.mark.parametrize(
    ("facts", "kind", "things"),
    [
        ({"shape": (96, 158, 3)}, Mismatch, ((96, 160, 3), (96, 158, 3), "--frame")),
        ({"typestr": "<f4"}, InvalidValue, ("uint8", "<f4")),
        ({"strides": (512, 3, 1)}, InvalidValue, ("contiguous",)),
    ],
)
def test_frames_on_the_gpu_that_do_not_fit_are_refused(facts, kind, things, driver, built, clip):
    stream = Stream(built(), "tensorrt")
    with pytest.raises(kind, match=naming(*things)):
        stream(OnGpu(clip(1, 96, 160)[0], **facts))


def test_a_frame_on_another_gpu_is_refused_and_the_stream_goes_on(double, built, clip):
    double.devices = 2
    path, (image,) = built(), clip(1, 96, 160)
    stream = Stream(path, "tensorrt", device=1)
    with pytest.raises(Mismatch, match=naming("GPU 0", "GPU 1", "device=0")):
        stream(OnGpu(image, device=0))
    stream.reset()
    np.testing.assert_array_equal([stream(OnGpu(image, device=1))], expected(path, [image]))


def test_other_backends_take_no_frames_on_the_gpu(driver, built, clip):
    stream = Stream(built(), "onnxruntime:cpu")
    with pytest.raises(Unsupported, match=naming("onnxruntime", "GPU")):
        stream(OnGpu(clip(1, 96, 160)[0]))


def test_masks_on_the_gpu_are_masks_of_the_bundles_size(driver, built, clip):
    logits = built(output="logits")
    with pytest.raises(Unsupported, match=naming(logits, "--output mask")):
        Stream(logits, "tensorrt", device_masks=True)
    with pytest.raises(Mismatch, match=naming((96, 160), (64, 64), "--frame 64x64")):
        Stream(built(), "tensorrt", device_masks=True)(clip(1, 64, 64)[0])
    with pytest.raises(Unfit, match=naming("onnxruntime", "device_masks")):
        Stream(built(), "onnxruntime", device_masks=True)


@pytest.mark.parametrize(
    "method", ["segformer", pytest.param("feature-pyramid", marks=pytest.mark.thorough)]
)
def test_a_baseline_runs_with_the_state_that_it_has(method, driver, built, baseline, clip):
    path, frames = built(source=baseline(method)), clip(9, 64, 96)
    masks = segmented(Stream(path, "tensorrt"), frames, reset_at=5)
    driver.check(masks, expected(path, frames, reset_at=5))
