"""The reference schedule: the references of each frame, also as a table for the decoder."""

PAPER_OFFSETS = (9, 6, 3)

# Row t holds the references of frame t. Rows 3…8 are the authors' choice for streams shorter than
# the largest offset. Their code uses no references for frames 0…2; a stream uses those available.
_YOUNG_STREAM = (
    (0, 0, 0),
    (0, 0, 0),
    (0, 1, 1),
    (0, 1, 2),
    (0, 2, 3),
    (0, 2, 4),
    (0, 2, 4),
    (0, 3, 5),
    (0, 3, 6),
)


def references_at(frame: int, offsets: tuple[int, ...] = PAPER_OFFSETS) -> tuple[int, ...]:
    """Numbers of a frame's references, farthest first; frame 0 is its own reference."""
    if offsets == PAPER_OFFSETS and frame < len(_YOUNG_STREAM):
        return _YOUNG_STREAM[frame]
    return tuple(max(0, frame - offset) for offset in offsets)


def memory_table(offsets: tuple[int, ...] = PAPER_OFFSETS) -> tuple[tuple[int, ...], ...]:
    """Positions of the references in a window of the last M + 1 frames, oldest first.

    Row min(t, M) is for frame t; M is the largest offset. Position M is frame t itself, position
    M − k the frame k before it.
    """
    depth = max(offsets)
    return tuple(
        tuple(depth - (frame - reference) for reference in references_at(frame, offsets))
        for frame in range(depth + 1)
    )
