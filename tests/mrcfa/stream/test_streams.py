import threading

import numpy as np
import pytest
from cameras import turmoil
from naming import naming

from mrcfa import Stream, Streams
from mrcfa.errors import InvalidValue, NotFound, Unsupported, WrongState


@pytest.fixture
def three(bundle):
    """A bundle of three streams."""
    return bundle("b0", streams=3)


@pytest.mark.parametrize(
    "count", [3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 4))]
)
def test_60_rounds_of_cameras_that_come_and_go_are_lone_streams_bit_for_bit(count, bundle, clip):
    path = bundle("b0") if count == 1 else bundle("b0", streams=count)
    with Streams(path, "onnxruntime:cpu") as streams:
        assert streams.slots == count
        happened = turmoil(
            streams, lambda: Stream(bundle("b0"), "onnxruntime:cpu"), clip(30, 96, 160), 60
        )
    assert min(happened.values()) > 3, happened


def test_every_backend_serves_cameras_alike(three, clip):
    frames, others = clip(4, 96, 160), clip(4, 96, 160, seed=1)
    eager, runtime = Streams(three, "eager"), Streams(three, "onnxruntime:cpu")
    for number, (one, other) in enumerate(zip(frames, others, strict=True)):
        shown = {"a": one} if number == 1 else {"a": one, "b": other}
        if number == 3:
            eager.reset("a")
            runtime.reset("a")
        answers = eager(shown), runtime(shown)
        for camera in shown:
            assert (answers[0][camera] == answers[1][camera]).mean() > 0.999


@pytest.mark.thorough
def test_fp16_graphs_take_several_streams_as_a_batch(three, bundle, clip):
    frames = clip(6, 96, 160)
    streams = Streams(three, "onnxruntime:cpu", precision="fp16")
    lone = Stream(bundle("b0"), "onnxruntime:cpu", precision="fp16")
    streams({"other": frames[5]})
    for frame in frames:
        found = streams({"other": frames[0], "this": frame})["this"]
        assert (found == lone(frame)).mean() > 0.99


def test_a_list_has_its_cameras_by_their_places(three, bundle, clip):
    frames = clip(3, 96, 160)
    streams, lone = Streams(three), Stream(bundle("b0"))
    assert streams([None, None]) == [None, None]
    for frame in frames:
        first, second = streams([None, frame])
        assert first is None
        np.testing.assert_array_equal(second, lone(frame))
    assert streams.cameras == (1,)
    (mask,) = streams(frames[:1])
    assert mask.shape == (96, 160)
    assert streams.cameras == (1, 0)


def test_a_camera_without_a_frame_is_answered_with_none(three, clip):
    streams = Streams(three)
    masks = streams({"a": clip(1, 96, 160)[0], "b": None})
    assert masks["b"] is None
    assert streams.cameras == ("a",)


def test_frames_of_any_size_have_masks_of_theirs(three, bundle, clip):
    small, own = clip(2, 50, 70), clip(2, 96, 160)
    streams, lone = Streams(three), Stream(bundle("b0"))
    for one, other in zip(small, own, strict=True):
        masks = streams([one, other])
        assert masks[1].shape == (96, 160)
        np.testing.assert_array_equal(masks[0], lone(one))


def test_one_camera_too_many_is_a_sentence_and_the_others_go_on(three, bundle, clip):
    frames = clip(3, 96, 160)
    streams, lone = Streams(three), Stream(bundle("b0"))
    streams({"a": frames[0], "b": frames[0], "c": frames[0]})
    lone(frames[0])
    with pytest.raises(Unsupported, match=naming("'d'", 3, "'a'", "'b'", "'c'", "--streams 4")):
        streams({"a": frames[1], "d": frames[1]})
    np.testing.assert_array_equal(streams({"a": frames[1]})["a"], lone(frames[1]))
    streams.leave("b")
    masks = streams({"a": frames[2], "d": frames[2]})
    np.testing.assert_array_equal(masks["a"], lone(frames[2]))
    np.testing.assert_array_equal(masks["d"], Stream(bundle("b0"))(frames[2]))


def test_a_bad_frame_names_its_camera_and_the_others_go_on(three, bundle, clip):
    frames = clip(2, 96, 160)
    streams, lone = Streams(three), Stream(bundle("b0"))
    np.testing.assert_array_equal(streams({"a": frames[0]})["a"], lone(frames[0]))
    for bad, things in (
        (frames[0].astype(float), ("uint8", "float64")),
        (frames[0][..., 0], ((96, 160),)),
    ):
        with pytest.raises(InvalidValue, match=naming("'b'", *things)):
            streams({"a": frames[1], "b": bad})
    assert streams.cameras == ("a",)
    np.testing.assert_array_equal(streams({"a": frames[1]})["a"], lone(frames[1]))


def test_a_camera_that_is_not_there_can_neither_leave_nor_begin_anew(three, clip):
    streams = Streams(three)
    with pytest.raises(NotFound, match=naming("'a'")):
        streams.reset("a")
    streams({"b": clip(1, 96, 160)[0]})
    with pytest.raises(NotFound, match=naming("'a'", "'b'")):
        streams.leave("a")


def test_what_is_closed_says_so(three, clip):
    with Streams(three) as streams:
        assert streams.backend == "onnxruntime (CPU, fp32)"
    with pytest.raises(WrongState):
        streams(clip(1, 96, 160))


@pytest.mark.parametrize("backend", ["eager", "onnxruntime:cpu"])
def test_a_lone_stream_may_have_a_bundle_for_several_to_itself(backend, three, bundle, clip):
    frames = clip(3, 96, 160)
    streams, lone = Stream(three, backend), Stream(bundle("b0"), backend)
    for frame in frames:
        np.testing.assert_array_equal(streams(frame), lone(frame))


def test_a_round_is_not_disturbed_by_another_thread(three, clip, monkeypatch):
    streams, frames = Streams(three, "onnxruntime:cpu"), clip(2, 96, 160)
    step_all, refused = streams._backend.step_all, []

    def intrude():
        for call in (lambda: streams([frames[1]]), lambda: streams.leave(0), streams.close):
            with pytest.raises(WrongState, match=naming("another thread")):
                call()
            refused.append(call)

    def step_beside_others(images, state):
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        return step_all(images, state)

    monkeypatch.setattr(streams._backend, "step_all", step_beside_others)
    streams([frames[0]])
    assert len(refused) == 3
    assert streams.cameras == (0,)
