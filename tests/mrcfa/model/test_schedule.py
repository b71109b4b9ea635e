import pytest

from mrcfa.model.schedule import memory_table, references_at


@pytest.mark.parametrize(
    ("frame", "references"),
    [
        (3, (0, 1, 2)),
        (4, (0, 2, 3)),
        (5, (0, 2, 4)),
        (6, (0, 2, 4)),
        (7, (0, 3, 5)),
        (8, (0, 3, 6)),
        (9, (0, 3, 6)),
        (10, (1, 4, 7)),
        (100, (91, 94, 97)),
    ],
)
def test_references_are_the_authors_from_frame_three_on(frame, references):
    assert references_at(frame) == references


def test_a_young_stream_refers_to_the_frames_there_are():
    assert references_at(0) == (0, 0, 0)
    assert set(references_at(1)) == {0}
    assert set(references_at(2)) == {0, 1}


def test_other_offsets_clamp_at_frame_zero():
    assert [references_at(t, (6, 3)) for t in (0, 2, 4, 6, 7)] == [
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 3),
        (1, 4),
    ]


@pytest.mark.parametrize("offsets", [(9, 6, 3), (6, 3), (1,), (5, 2, 1)])
def test_the_memory_table_points_at_the_scheduled_frames(offsets):
    depth = max(offsets)
    table = memory_table(offsets)
    assert len(table) == depth + 1
    for frame in range(3 * depth):
        last = list(range(frame - depth, frame + 1))  # oldest first, the frame itself last
        found = tuple(last[position] for position in table[min(frame, depth)])
        assert found == references_at(frame, offsets)
