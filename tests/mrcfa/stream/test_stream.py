import resource
import threading

import numpy as np
import pytest
import torch
from cases import normalised
from naming import naming
from PIL import Image

from mrcfa import Stream
from mrcfa.bundle import Unfit
from mrcfa.errors import InvalidValue, Unsupported, WrongState
from mrcfa.model.frames import full_size_mask
from mrcfa.stream.resize import mask_of_logits


def masks(stream, frames):
    return np.stack([stream(frame) for frame in frames])


def test_a_stream_gives_a_mask_of_the_frames_size(bundle, clip):
    with Stream(bundle("b0"), backend="onnxruntime") as stream:
        assert stream.backend == "onnxruntime (CPU, fp32)"
        assert (stream.size, len(stream.classes), stream.palette.shape) == (
            (96, 160),
            124,
            (124, 3),
        )
        mask = stream(clip(1, 96, 160)[0])
    assert (mask.dtype, mask.shape) == (np.uint8, (96, 160))


def test_backends_agree_through_cold_start_and_steady_state(bundle, clip):
    frames = clip(12, 96, 160)
    eager = masks(Stream(bundle("b0"), backend="eager"), frames)
    runtime = masks(Stream(bundle("b0"), backend="onnxruntime"), frames)
    assert (eager == runtime).mean() > 0.9999


def test_a_misspelt_option_is_told_as_such(bundle):
    with pytest.raises(TypeError, match=naming("thread")):
        Stream(bundle("b0"), thread=2)
    with pytest.raises(InvalidValue, match=naming("warm", "stream", "single")):
        Stream(bundle("b0"), cold_start="warm")


def test_advice_for_other_backends_does_not_keep_auto_from_any(bundle):
    stream = Stream(bundle("b0"), threads=1, cuda_graphs=False)
    assert stream.backend.startswith("onnxruntime")
    with pytest.raises(Unfit, match=naming("onnxruntime", "cuda_graphs")):
        Stream(bundle("b0"), "onnxruntime", cuda_graphs=False)


def test_a_stream_may_be_closed_twice(bundle):
    with Stream(bundle("b0")) as stream:
        stream.close()
    stream.close()


def test_auto_picks_what_runs_here(bundle):
    assert Stream(bundle("b0")).backend.startswith("onnxruntime")


def test_interleaved_streams_share_the_session_and_not_the_state(bundle, clip):
    first, second = clip(12, 96, 160), clip(12, 96, 160, seed=1)
    alone = [masks(Stream(bundle("b0")), frames) for frames in (first, second)]
    streams = Stream(bundle("b0")), Stream(bundle("b0"))
    assert streams[0]._backend is streams[1]._backend
    together = [(streams[0](a), streams[1](b)) for a, b in zip(first, second, strict=True)]
    np.testing.assert_array_equal([pair[0] for pair in together], alone[0])
    np.testing.assert_array_equal([pair[1] for pair in together], alone[1])


def test_streams_in_threads_do_not_disturb_each_other(bundle, clip):
    clips = [clip(8, 96, 160, seed=seed) for seed in range(3)]
    alone = [masks(Stream(bundle("b0")), frames) for frames in clips]
    found: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda i=i, f=f: found.update({i: masks(Stream(bundle("b0")), f)}))
        for i, f in enumerate(clips)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, wanted in enumerate(alone):
        np.testing.assert_array_equal(found[number], wanted)


def test_reset_equals_a_new_stream_to_the_bit(bundle, clip):
    frames = clip(12, 96, 160)
    stream = Stream(bundle("b0"))
    masks(stream, clip(5, 96, 160, seed=3))
    stream.reset()
    np.testing.assert_array_equal(masks(stream, frames), masks(Stream(bundle("b0")), frames))


@pytest.mark.thorough
def test_a_thousand_frames_do_not_grow_the_process(bundle, clip):
    frames = clip(10, 96, 160)
    stream = Stream(bundle("b0"), threads=1)
    for number in range(1000):
        stream(frames[number % 10])
        if number == 100:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 16 * 1024


def test_frames_of_another_size_are_resized_on_the_host(bundle, clip):
    mask = Stream(bundle("b0"))(clip(1, 131, 77)[0])
    assert mask.shape == (131, 77)


def test_a_bundle_of_logits_gives_the_masks_of_its_model(bundle, clip):
    frames, path = clip(3, 96, 160), bundle("b1", output="logits")
    wanted = masks(Stream(path, "eager"), frames)
    found = masks(Stream(path, "onnxruntime:cpu"), frames)
    assert (wanted == found).mean() > 0.999


def test_the_authors_cold_start_answers_with_the_single_frame_head(bundle, clip, golden_model):
    frames = clip(4, 96, 160)
    single = Stream(bundle("b0"), backend="eager", cold_start="single")
    streamed = Stream(bundle("b0"), backend="eager")
    answers = masks(single, frames)
    logits = golden_model("b0", Stream(bundle("b0")).config.depths)(normalised(frames[2:3]))
    np.testing.assert_array_equal(answers[2], full_size_mask(logits, (96, 160), (96, 160)))
    assert (answers[3] == masks(streamed, frames)[3]).all()


def test_pillow_images_and_tensors_get_the_mask_of_their_array(bundle, clip):
    (frame,) = clip(1, 96, 160)
    wanted = Stream(bundle("b0"))(frame)
    for same in (Image.fromarray(frame), torch.from_numpy(frame)):
        np.testing.assert_array_equal(Stream(bundle("b0"))(same), wanted)


def test_a_frame_that_is_none_is_refused_and_the_stream_goes_on(bundle, clip):
    frames, stream = clip(2, 96, 160), Stream(bundle("b0"))
    stream(frames[0])
    with pytest.raises(InvalidValue, match=naming("uint8", "float32")):
        stream(frames[1] / np.float32(255))
    lone = Stream(bundle("b0"))
    lone(frames[0])
    np.testing.assert_array_equal(stream(frames[1]), lone(frames[1]))


@pytest.mark.parametrize("backend", ["onnxruntime", "eager"])
def test_logits_are_those_that_the_mask_is_made_of(bundle, clip, backend):
    frames, path = clip(3, 96, 160), bundle("b1", output="logits")
    stream, masked = Stream(path, backend), Stream(path, backend)
    for frame in frames:
        logits = stream.logits(frame)
        assert (logits.dtype, logits.shape) == (np.float32, (124, 24, 40))
        mask = mask_of_logits(logits, (96, 160), (96, 160))
        np.testing.assert_array_equal(mask, masked(frame))


def test_a_bundle_of_masks_has_no_logits_and_says_how_to_get_them(bundle, clip):
    with pytest.raises(Unsupported, match=naming("--output logits")):
        Stream(bundle("b0")).logits(clip(1, 96, 160)[0])


def test_a_thread_that_comes_in_while_another_is_at_work_is_refused(bundle, clip, monkeypatch):
    (frame,) = clip(1, 96, 160)
    entered, go_on = threading.Event(), threading.Event()
    stream, found = Stream(bundle("b1", output="logits")), []
    step = stream._backend.step

    def slow(image, state):
        entered.set()
        assert go_on.wait(60)
        return step(image, state)

    monkeypatch.setattr(stream._backend, "step", slow)
    first = threading.Thread(target=lambda: found.append(stream(frame)))
    first.start()
    assert entered.wait(60)
    calls = (
        lambda: stream(frame),
        lambda: stream.logits(frame),
        lambda: stream.submit(frame),
        stream.result,
        stream.reset,
        stream.close,
    )
    for call in calls:
        with pytest.raises(WrongState, match=naming("another thread")):
            call()
    go_on.set()
    first.join()
    assert len(found) == 1
    stream(frame)  # the threads took turns


@pytest.mark.parametrize(
    ("backend", "kind", "things"),
    [
        ("caffe", InvalidValue, ("caffe", "auto", "tensorrt", "onnxruntime", "eager")),
        ("onnxruntime:tpu", InvalidValue, ("tpu",)),
        ("onnxruntime:cuda", Unfit, ("CUDAExecutionProvider", "onnxruntime:cpu")),
    ],
)
def test_a_backend_that_is_not_there_is_named(bundle, backend, kind, things):
    with pytest.raises(kind, match=naming(*things)):
        Stream(bundle("b0"), backend=backend)
