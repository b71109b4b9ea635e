"""Two frames in flight: the masks of one after the other, whatever the GPU runs first."""

import gc
import io
from collections import deque
from fractions import Fraction
from importlib import import_module
from random import Random

import fake_cuda
import numpy as np
import pytest
from naming import naming

from mrcfa import Stream
from mrcfa.backends import BACKENDS
from mrcfa.backends.cuda import CudaStream
from mrcfa.backends.plans import Context
from mrcfa.backends.tensorrt import Lane
from mrcfa.errors import InvalidValue, RuntimeFailed, WrongState
from mrcfa.video.session import open_session
from mrcfa.video.sources import RawFrames, Span
from mrcfa.video.style import Look


@pytest.fixture(scope="module")
def videos(bundle, clip):
    """Frames, in which of them a video begins, and their masks one after the other."""
    chance, frames = Random(3), clip(200, 96, 160)
    starts = {number for number in range(200) if chance.random() < 0.06}
    stream, masks = Stream(bundle("b0"), "onnxruntime:cpu", precision="fp32", threads=1), []
    for number, frame in enumerate(frames):
        if number in starts:
            stream.reset()
        masks.append(stream(frame))
    assert len(starts) > 5
    assert min(starts) > 4
    return frames, starts, masks


def rivalry(driver, order):
    """Let the fake GPU run ahead of its time as a seed has it; with None it does not."""
    if order is not None:
        driver.rivals = Random(order)


def pipelined(stream, frames, starts=(), read=lambda mask: mask, chance=None):
    """Masks of frames, two in flight wherever no video begins; with `chance` now and then one."""
    waiting, masks = deque(), []

    def take():
        masks.append(read(stream.result()))
        waiting.popleft()

    for number, frame in enumerate(frames):
        if number in starts:
            while waiting:
                take()
            stream.reset()
        stream.submit(frame)
        waiting.append(number)
        while len(waiting) == 2 or (waiting and chance and chance.random() < 0.2):
            take()
    while waiting:
        take()
    return masks


@pytest.mark.parametrize(
    "order", [0, *(pytest.param(each, marks=pytest.mark.thorough) for each in (None, 1, 2))]
)
def test_two_hundred_frames_with_resets_give_the_masks_of_one_after_the_other(
    order, driver, built, videos
):
    rivalry(driver, order)
    frames, starts, wanted = videos
    length = 200 if order in (None, 0) else 30
    stream = Stream(built(precision="fp32"), "tensorrt")
    masks = pipelined(stream, frames[:length], starts, chance=Random(5) if order else None)
    driver.check(masks, wanted[:length])
    assert driver.launches > length  # CUDA graphs
    assert stream.overlaps_frames


def test_run_has_two_frames_in_flight_where_that_saves_time(
    driver, built, videos, tmp_path, monkeypatch
):
    driver.rivals = Random(7)
    frames, starts, wanted = videos
    lengths = (min(starts), 4)
    sources = [
        RawFrames(io.BytesIO(part.tobytes()), (96, 160), Span(), Fraction(25))
        for part in (frames[: lengths[0]], frames[: lengths[1]])
    ]
    places = [str(tmp_path / name) for name in ("a.npz", "b.npz")]
    submitted = []
    real = Stream.submit

    def submit(self, frame):
        submitted.append(frame)
        real(self, frame)

    monkeypatch.setattr(Stream, "submit", submit)
    with open_session(built(precision="fp32"), "tensorrt", 2) as session:
        done = session.run(sources, places, Look())
    assert tuple(tally.frames for tally in done.tallies) == lengths
    assert len(submitted) == sum(lengths)
    for place, count in zip(places, lengths, strict=True):
        with np.load(place) as saved:
            found = [saved[f"{number:06d}"] for number in range(count)]
        np.testing.assert_array_equal(found, wanted[:count])


def without_events(monkeypatch):
    monkeypatch.setattr(CudaStream, "wait", lambda self, event: None)


def with_one_slot(monkeypatch):
    overlap = Lane.overlap

    def shared(self):
        overlap(self)
        if self._slots[0] is not self._slots[1]:
            self._slots[1] = self._slots[0]
            self._prepare()

    monkeypatch.setattr(Lane, "overlap", shared)


def with_one_scratch_memory(monkeypatch):
    use, first = Context.use, []

    def shared(self, scratch):
        first.append(scratch)
        use(self, first[0])

    monkeypatch.setattr(Context, "use", shared)


@pytest.mark.parametrize("broken", [without_events, with_one_slot, with_one_scratch_memory])
def test_the_double_finds_what_would_race(broken, driver, built, videos, monkeypatch):
    rivalry(driver, 0)
    broken(monkeypatch)
    frames, starts, wanted = videos
    stream = Stream(built(precision="fp32"), "tensorrt")
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(pipelined(stream, frames[:20], starts), wanted[:20])


@pytest.mark.parametrize("order", [None, 0])
def test_frames_and_masks_may_be_on_the_gpu(order, driver, built, videos):
    rivalry(driver, order)
    frames, starts, wanted = videos

    def on_gpu():
        for number, frame in enumerate(frames[:20]):
            yield OnGpu(driver, frame, None if number % 3 else driver.LEGACY)

    def read(mask):
        facts = mask.__cuda_array_interface__
        return driver.view(facts["data"][0], mask.nbytes).reshape(mask.shape).copy()

    stream = Stream(built(precision="fp32"), "tensorrt", device_masks=True)
    np.testing.assert_array_equal(pipelined(stream, on_gpu(), starts, read), wanted[:20])


class OnGpu:
    """A frame that a stream of somebody else writes, or None; freed as soon as nobody holds it."""

    def __init__(self, driver, image, written_on):
        driver.contexts.append(driver.PRIMARY)
        _, self.address = driver.cuMemAlloc(image.nbytes)
        driver.contexts.pop()
        memory = driver.view(self.address, image.nbytes)
        self._driver = driver

        def write():
            memory[:] = image.ravel()

        driver.streams[written_on].add(write) if written_on else write()
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": image.shape,
            "typestr": image.dtype.str,
            "data": (self.address, False),
            "stream": written_on,
        }

    def __del__(self):
        """Let the memory serve somebody else at once, as PyTorch's allocator does."""
        self._driver.memory.pop(self.address)


def test_a_mask_on_the_gpu_lasts_until_the_next_submit(driver, built, videos):
    driver.rivals = Random(1)
    frames, _, wanted = videos
    stream = Stream(built(precision="fp32"), "tensorrt", device_masks=True)
    stream.submit(frames[0])
    stream.submit(frames[1])
    masks = [stream.result(), stream.result()]
    for mask, expected in zip(masks, wanted, strict=False):
        found = driver.view(mask.ptr, mask.nbytes).reshape(mask.shape)
        np.testing.assert_array_equal(found, expected)


def test_calls_and_submits_may_alternate_and_frames_of_any_size_too(driver, built, clip, videos):
    driver.rivals = Random(2)
    frames, _, _ = videos
    small = clip(6, 64, 80)
    path = built(precision="fp32")
    stream, plain = Stream(path, "tensorrt"), Stream(path, "tensorrt")
    for odd, even in zip(small, frames, strict=False):
        stream.submit(odd)
        stream.submit(even)
        for frame in (odd, even):
            np.testing.assert_array_equal(stream.result(), plain(frame))
        np.testing.assert_array_equal(stream(odd), plain(odd))


@pytest.mark.parametrize("record", BACKENDS.values(), ids=BACKENDS)
def test_a_record_says_of_overlap_what_the_backend_says(record):
    module, _, name = record.factory.partition(":")
    assert getattr(import_module(module), name).overlaps_frames is record.overlaps_frames


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime:cpu", "eager"])
def test_more_than_two_or_less_than_one_frame_in_flight_is_a_sentence(
    backend, driver, built, videos
):
    frames, _, wanted = videos
    path = built(precision="fp32")
    stream = Stream(path, backend)
    with pytest.raises(WrongState, match=naming("submit(frame)")):
        stream.result()
    stream.submit(frames[0])
    with pytest.raises(WrongState, match=naming("result()", "stream(frame)")):
        stream(frames[1])
    stream.submit(frames[1])
    with pytest.raises(WrongState, match=naming("2", "result()")):
        stream.submit(frames[2])
    with pytest.raises(InvalidValue, match=naming("uint8", "float64")):
        Stream(path, backend).submit(frames[0] / 255)
    driver.check([stream.result(), stream.result()], wanted[:2])
    assert stream.overlaps_frames is (backend == "tensorrt")
    stream.close()
    with pytest.raises(WrongState, match=naming("closed")):
        stream.result()


def test_a_reset_drops_the_frames_in_flight_and_starts_anew(driver, built, videos):
    driver.rivals = Random(4)
    frames, _, wanted = videos
    stream = Stream(built(precision="fp32"), "tensorrt")
    for number in range(4):
        stream.submit(frames[50 + number])
        stream.submit(frames[60])
        if number % 2:
            stream.result()
        stream.reset()
    taken = driver.device_bytes()
    with pytest.raises(WrongState, match=naming("submit(frame)")):
        stream.result()
    np.testing.assert_array_equal(pipelined(stream, frames[:5]), wanted[:5])
    stream.reset()
    assert driver.device_bytes() == taken


@pytest.mark.parametrize("ends", ["closed", "dropped"])
def test_a_stream_may_end_with_frames_in_flight(ends, driver, built, videos):
    """The fixture `driver` fails if an engine ends while it is at work."""
    path = built(precision="fp32")
    other, stream = Stream(path, "tensorrt"), Stream(path, "tensorrt")
    for frame in videos[0][:2]:
        stream.submit(frame)
    if ends == "closed":
        stream.close()
    del stream
    gc.collect()
    assert driver.misuses == []
    np.testing.assert_array_equal(other(videos[0][0]), videos[2][0])


def test_a_gpu_that_goes_away_with_frames_in_flight_is_told(driver, built, videos):
    stream = Stream(built(precision="fp32"), "tensorrt")
    stream.submit(videos[0][0])
    stream.submit(videos[0][1])
    driver.fault = fake_cuda.CUresult.CUDA_ERROR_LAUNCH_FAILED
    for _ in range(2):
        with pytest.raises(RuntimeFailed, match=naming("CUDA_ERROR_LAUNCH_FAILED", "dmesg")):
            stream.result()
    stream.close()
    driver.fault = None


def test_a_submit_that_fails_leaves_the_frame_before_it(driver, built, videos, monkeypatch):
    frames, _, wanted = videos
    stream = Stream(built(precision="fp32"), "tensorrt", cuda_graphs=False)
    stream.submit(frames[0])
    with monkeypatch.context() as patch:
        patch.setattr(Context, "enqueue", failing)
        with pytest.raises(RuntimeFailed, match="no more"):
            stream.submit(frames[1])
    driver.check(stream.result(), wanted[0])
    stream.submit(frames[1])
    driver.check(stream.result(), wanted[1])


def failing(*_):
    raise RuntimeFailed("no more")


def test_who_never_submits_pays_no_memory_for_it(driver, built, videos):
    stream = Stream(built(precision="fp32"), "tensorrt")
    stream(videos[0][0])
    one = driver.device_bytes()
    stream(videos[0][1])
    assert driver.device_bytes() == one
    stream.submit(videos[0][2])
    assert driver.device_bytes() > one
    stream.result()
