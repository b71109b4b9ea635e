"""All checks of one way to run a bundle, in a process of its own.

    python -m mrcfa.selftest.stream_checks BUNDLE "onnxruntime:cpu fp32" answers.jsonl 0

A runtime that crashes ends this process only, and each result is written at once. The streams stay
open at the end, because a clean exit of the interpreter with open streams is checked as well.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np

from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Output
from mrcfa.selftest.environment import gpu_state
from mrcfa.selftest.expected import WARM_UP, Expected, Masks, same
from mrcfa.selftest.line import REPORT, Found, Line, NotRun, Outcome, line_of
from mrcfa.selftest.ways import SelftestWay, ways
from mrcfa.stream.stream import Stream
from mrcfa.stream.streams import Streams

AGAIN = 4
"""Number of frames of the clip that are segmented again, in threads or after a reset."""


def checked(bundle: Bundle, way: SelftestWay, gpus: int = 0) -> Iterator[Line]:
    """Yield one result after the other; stop if the engine or its masks fail."""
    if way.engine is not None:
        from mrcfa.selftest.engine import examined

        engine = way.engine
        yield (line := line_of(way.name, "engine", lambda: examined(bundle, engine)))
        if line.outcome is not Outcome.WORKS:
            return
    run = _Run(bundle, way)
    yield (line := line_of(way.name, "masks", run.masks_found))
    if line.outcome is not Outcome.WORKS or way.emulated:
        return
    if way.engine is not None:
        yield line_of(way.name, "CUDA graphs", run.graphs_found)
        yield line_of(way.name, "no CUDA graphs", run.without_graphs)
        yield line_of(way.name, "on the GPU", run.on_the_gpu)
        yield line_of(way.name, "two in flight", run.with_two_in_flight)
    yield line_of(way.name, "two threads", run.in_two_threads)
    yield line_of(way.name, "reset", run.after_reset)
    if bundle.manifest.streams > 1:
        yield line_of(way.name, "every stream", run.in_every_stream)
    if way.cuda:
        yield line_of(way.name, "second GPU", lambda: run.on_second_gpu(gpus))


class _Run:
    """One stream over the whole clip; all later checks compare their masks with this stream's."""

    def __init__(self, bundle: Bundle, way: SelftestWay) -> None:
        self._bundle, self._way = bundle, way

    def masks_found(self) -> Found:
        self._expected = Expected.of(self._bundle)
        self._stream = self._way.open(self._bundle.path)
        seconds: list[float] = []
        self._masks = _masks(self._stream, self._expected.frames, seconds)
        gpu = {"gpu": gpu_state()} if self._way.cuda else {}  # before the GPU lowers its clocks
        found = self._expected.agreement(self._masks, self._way.limits, seconds)
        return Found(found.words, {**found.facts, "backend": self._stream.backend, **gpu})

    def graphs_found(self) -> Found:
        from mrcfa.selftest.graphs import recorded

        return recorded(self._bundle, self._way, self._expected.frames[:WARM_UP])

    def without_graphs(self) -> Found:
        found = self._again(cuda_graphs=False)
        return same(found, self._start, "kernels launched one by one give the same masks", REPORT)

    def on_the_gpu(self) -> Found:
        from mrcfa.selftest.device_frames import masks_by_device

        if self._bundle.manifest.output is not Output.MASK:
            raise NotRun("the bundle's output is logits, which become masks on the host")
        stream = self._way.open(self._bundle.path, device_masks=True)
        found = masks_by_device(stream, self._expected.frames[:AGAIN])
        words = "frames and masks in GPU memory give the same masks"
        return same(found, self._start, words, REPORT)

    def with_two_in_flight(self) -> Found:
        frames, found = self._expected.frames, []
        with self._way.open(self._bundle.path) as stream:
            stream.submit(frames[0])
            for frame in frames[1:]:
                stream.submit(frame)
                found.append(stream.result())
            found.append(stream.result())
        words = "two frames in flight give the same masks"
        return same(np.stack(found), self._masks, words, REPORT)

    def in_two_threads(self) -> Found:
        """Check that two streams in two threads do not influence each other."""
        answers: dict[int, Masks] = {}
        faults: list[Exception] = []

        def work(number: int) -> None:
            try:
                answers[number] = self._again()
            except Exception as error:
                faults.append(error)

        threads = [Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        found = np.concatenate([answers[number] for number in range(2)])
        before = np.concatenate([self._start, self._start])
        words = "two streams in two threads do not influence each other"
        return same(found, before, words, REPORT)

    def after_reset(self) -> Found:
        self._stream.reset()
        found = _masks(self._stream, self._expected.frames[:AGAIN])
        return same(found, self._start, "a reset stream gives the masks of a new one", REPORT)

    def in_every_stream(self) -> Found:
        """Check every stream of the bundle; each begins one round after the previous one."""
        frames = self._expected.frames[:AGAIN]
        way = self._way
        with Streams(self._bundle.path, way.backend, precision=way.precision) as streams:
            found: list[list[Masks]] = [[] for _ in range(streams.slots)]
            for number in range(AGAIN + streams.slots - 1):
                numbers = {stream: number - stream for stream in range(streams.slots)}
                shown = {stream: frames[n] for stream, n in numbers.items() if 0 <= n < AGAIN}
                for stream, mask in streams(shown).items():
                    assert mask is not None  # it had a frame
                    found[stream].append(mask)
        words = f"{len(found)} streams in one pass do not influence each other"
        return same(np.array(found), np.stack([self._start] * len(found)), words, REPORT)

    def on_second_gpu(self, gpus: int) -> Found:
        if gpus < 2:
            raise NotRun("there is no second GPU")
        found = self._again(device=1)
        return same(found, self._start, "GPU 1 gives the masks of GPU 0", REPORT)

    @property
    def _start(self) -> Masks:
        return self._masks[:AGAIN]

    def _again(self, **options: Any) -> Masks:
        with self._way.open(self._bundle.path, **options) as stream:
            return _masks(stream, self._expected.frames[:AGAIN])


def _masks(stream: Stream, frames: Masks, seconds: list[float] | None = None) -> Masks:
    """The masks of the frames; the time of each is added to `seconds`."""
    masks, seconds = [], [] if seconds is None else seconds
    for frame in frames:
        began = perf_counter()
        masks.append(stream(frame))
        seconds.append(perf_counter() - began)
    return np.stack(masks)


def main(path: str, name: str, answers: str, gpus: str) -> None:
    bundle = Bundle.open(path)
    way = next(way for way in ways(bundle) if way.name == name)
    with Path(answers).open("w", encoding="utf-8") as file:
        for line in checked(bundle, way, int(gpus)):
            file.write(json.dumps(line.to_json()) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
