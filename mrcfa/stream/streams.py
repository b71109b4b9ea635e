"""`Streams`: several videos at once, with one frame of each in every pass through the graphs."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar, overload

from mrcfa.backends import Image
from mrcfa.errors import MrcfaError, NotFound, Unsupported, named
from mrcfa.stream import segmenter
from mrcfa.stream.segmenter import Segmenter

Camera = TypeVar("Camera", bound=Hashable)
Frame = segmenter.Frame | None


class Streams(Segmenter):
    """Up to B videos: one for each slot of a bundle from `mrcfa export --streams B`.

        with Streams("bundles/six-cameras") as streams:
            masks = streams({"front": front, "rear": rear})    # a mapping from camera to mask
            masks = streams([front, None, rear])               # or a list, of cameras 0, 1, 2

    A camera joins with its first frame and keeps a slot until it leaves. A camera without a frame
    in a round, None or absent from the mapping, keeps its state. Every mask equals that of a
    `Stream` of this camera alone. Every round costs the same, however many cameras take part.
    After an error in a round, no camera's state has changed.

    Frames, masks and options are those of `Stream`, and one thread at a time may use it.
    """

    @property
    def slots(self) -> int:
        return self._model.streams

    @property
    def cameras(self) -> tuple[Hashable, ...]:
        """The cameras that have a slot, in the order in which they joined."""
        return tuple(self._rows)

    @overload
    def __call__(self, frames: Mapping[Camera, Frame]) -> dict[Camera, Image | None]: ...
    @overload
    def __call__(self, frames: Sequence[Frame]) -> list[Image | None]: ...
    def __call__(self, frames: Any) -> Any:
        """The masks of one round, in the form of `frames`; None for a camera without a frame."""
        with self._alone():
            if isinstance(frames, Mapping):
                return self._segmented(frames)
            masks = self._segmented(dict(enumerate(frames)))
        return [masks[camera] for camera in range(len(frames))]

    def reset(self, camera: Hashable) -> None:
        """Forget all frames of a camera; its next frame starts a new video."""
        with self._alone():
            self._restart(camera)

    def leave(self, camera: Hashable) -> None:
        """Remove a camera and free its slot."""
        with self._alone():
            self._restart(camera)
            del self._rows[camera]

    def _restart(self, camera: Hashable) -> None:
        self._state = self._backend.restart(self._row(camera), self._state)

    def _begin(self) -> None:
        self._rows: dict[Hashable, int] = {}
        super()._begin()

    def _segmented(self, frames: Mapping[Any, Frame]) -> dict[Any, Image | None]:
        masks: dict[Any, Image | None] = dict.fromkeys(frames)
        prepared = {
            camera: self._prepared_of(camera, frame)
            for camera, frame in frames.items()
            if frame is not None
        }
        if not prepared:
            return masks
        rows = self._with_newcomers(prepared)
        images: list[Image | None] = [None] * self.slots
        for camera, (image, _) in prepared.items():
            images[rows[camera]] = image
        answers, self._state = self._backend.step_all(images, self._state)
        self._rows = rows
        for camera, (_, size) in prepared.items():
            answer = answers[rows[camera]]
            assert answer is not None  # it had a frame
            masks[camera] = self._mask_of(answer, size)
        return masks

    def _prepared_of(self, camera: Hashable, frame: Any) -> tuple[Any, tuple[int, ...]]:
        try:
            return self._prepared(frame)
        except MrcfaError as error:
            raise type(error)(f"camera {camera!r}: {error}") from None

    def _with_newcomers(self, cameras: Mapping[Hashable, Any]) -> dict[Hashable, int]:
        """The row of each camera; a new camera gets a free one."""
        rows = dict(self._rows)
        free = [row for row in range(self.slots) if row not in rows.values()]
        newcomers = [camera for camera in cameras if camera not in rows]
        if len(newcomers) > len(free):
            raise Unsupported(
                f"no slot is free for {named(map(repr, newcomers[len(free) :]))}: {self.slots} "
                f"in all, taken by {named(map(repr, (*rows, *newcomers[: len(free)])))}; let a "
                f"camera leave, or export with --streams {len(rows) + len(newcomers)}"
            )
        return rows | dict(zip(newcomers, free, strict=False))

    def _row(self, camera: Hashable) -> int:
        if camera not in self._rows:
            here = named(map(repr, self._rows)) or "none"
            raise NotFound(f"there is no camera {camera!r}; those here are {here}")
        return self._rows[camera]
