"""Several inputs at once on one loaded bundle: each gets the masks that it would get alone."""

import io
from fractions import Fraction

import numpy as np
import pytest
from naming import naming

from mrcfa import Stream
from mrcfa.bundle import Bundle
from mrcfa.errors import Unsupported
from mrcfa.video.session import open_session
from mrcfa.video.sources import RawFrames, Span
from mrcfa.video.style import Look


@pytest.mark.parametrize("slots", [1, 2])
def test_inputs_of_different_lengths_get_the_masks_of_lone_streams(slots, bundle, clip, tmp_path):
    videos = [clip(7, 96, 160), clip(4, 96, 160, seed=1)]
    sources = [
        RawFrames(io.BytesIO(video.tobytes()), (96, 160), Span(), Fraction(25)) for video in videos
    ]
    places = [str(tmp_path / f"{number}.npz") for number in range(2)]
    path = bundle("b0", streams=3) if slots == 2 else bundle("b0")
    with open_session(path, "onnxruntime:cpu", 2) as session:
        done = session.run(sources, places, Look())
    assert [tally.frames for tally in done.tallies] == [7, 4]
    for video, place in zip(videos, places, strict=True):
        lone = Stream(bundle("b0"), "onnxruntime:cpu")
        with np.load(place) as saved:
            for number, frame in enumerate(video):
                np.testing.assert_array_equal(saved[f"{number:06d}"], lone(frame))


def test_a_bundle_is_opened_once_for_all_inputs(bundle, monkeypatch):
    path, read = bundle("b0"), []
    opened = Bundle.open
    monkeypatch.setattr(Bundle, "open", lambda place: read.append(place) or opened(place))
    with open_session(path, "onnxruntime:cpu", 2):
        assert read == [path]


def test_more_inputs_than_slots_are_refused_at_once(bundle):
    four = open_session(bundle("b0", streams=3), "onnxruntime:cpu", 4)
    with pytest.raises(Unsupported, match=naming("3 slots", "4 inputs", "--streams 4")):
        four.__enter__()
