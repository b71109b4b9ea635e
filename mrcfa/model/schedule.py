"""The reference schedule: which earlier frames serve frame t, also as the decoder's table."""

PAPER_OFFSETS = (9, 6, 3)

# Rows 3…8 are the authors' choice while the stream is younger than the farthest reference. They
# answer frames 0…2 without references; a stream refers to the frames there are instead.
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
    """The frame numbers that serve frame `frame`, farthest first; frame 0 refers to itself."""
    if offsets == PAPER_OFFSETS and frame < len(_YOUNG_STREAM):
        return _YOUNG_STREAM[frame]
    return tuple(max(0, frame - offset) for offset in offsets)


def memory_table(offsets: tuple[int, ...] = PAPER_OFFSETS) -> tuple[tuple[int, ...], ...]:
    """Row min(t, M): where frame t's references stand in the last M + 1 frames, oldest first.

    M is the largest offset; position M is the frame itself, position M − k the frame k before it.
    """
    depth = max(offsets)
    return tuple(
        tuple(depth - (frame - reference) for reference in references_at(frame, offsets))
        for frame in range(depth + 1)
    )
