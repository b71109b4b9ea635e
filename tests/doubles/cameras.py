"""Cameras that pause, join, leave and begin anew at random, against a lone stream of each."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from mrcfa import Stream, Streams

CAMERAS = ("front", "rear", 7, ("left", 2), "right", None)


def turmoil(
    streams: Streams,
    lone: Callable[[], Stream],
    frames: np.ndarray,
    rounds: int,
    seed: int = 0,
    shown: Callable[[np.ndarray], Any] = lambda frame: frame,
    read: Callable[[Any], np.ndarray] = lambda mask: mask,
    check: Callable[[Any, Any], None] = np.testing.assert_array_equal,
) -> dict[str, int]:
    """How often each thing happened; `check` compares every mask with the lone stream's."""
    chance, alone = Random(seed), dict[Any, Stream]()
    happened = dict.fromkeys(("frames", "pauses", "joins", "leaves", "resets"), 0)
    for _ in range(rounds):
        for camera in [camera for camera in alone if chance.random() < 0.2]:
            if chance.random() < 0.5:
                streams.leave(camera)
                alone.pop(camera).close()
                happened["leaves"] += 1
            else:
                streams.reset(camera)
                alone[camera].reset()
                happened["resets"] += 1
        for camera in CAMERAS:
            if camera not in alone and len(alone) < streams.slots and chance.random() < 0.3:
                alone[camera] = lone()
                happened["joins"] += 1
        present = [
            camera for camera in alone if chance.random() < 0.8 or camera not in streams.cameras
        ]
        chance.shuffle(present)
        images = {camera: frames[chance.randrange(len(frames))] for camera in present}
        masks = streams({camera: shown(image) for camera, image in images.items()})
        assert masks.keys() == images.keys()
        for camera, image in images.items():
            check(read(masks[camera]), alone[camera](image))
        happened["frames"] += len(images)
        happened["pauses"] += len(alone) - len(images)
    for stream in alone.values():
        stream.close()
    return happened
