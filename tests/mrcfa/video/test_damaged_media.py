"""Damaged media files give what they hold, or a sentence."""

import pytest
from damaged_media import FRAMES, damaged_files, whole_files

from mrcfa.errors import MrcfaError
from mrcfa.video.sources import open_source

COUNT = 100
"""Number of files of each kind; tests/attack_media.py reads any number."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return whole_files(tmp_path_factory.mktemp("whole"))


def read(path):
    """How many frames the file gives; what cannot be opened gives its kind of error."""
    try:
        source = open_source(str(path))
    except MrcfaError as error:
        return type(error).__name__
    shapes = [frame.image.shape for frame in source]
    assert all(len(shape) == 3 and shape[2] == 3 for shape in shapes)
    return len(shapes)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", FRAMES)
def test_a_damaged_file_gives_its_frames_or_a_sentence(kind, whole, tmp_path):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(whole[kind])
    assert read(path) == FRAMES[kind]
    for data in damaged_files(kind, whole[kind], COUNT):
        path.write_bytes(data)
        read(path)
