"""`mrcfa bench --sizes`: growth with the pixels."""

import json
import shutil

import numpy as np
import pytest
from naming import names

from mrcfa.benchmarks.sizes import SizeRow, exponents
from mrcfa.benchmarks.speed import Speed

SIZES = ("64x96", "96x160")


@pytest.fixture
def made(bundle, tmp_path):
    """Bundles where the command expects its own; it makes only those that are missing."""
    for text in SIZES:
        size = tuple(map(int, text.split("x")))
        shutil.copytree(bundle("b0", size=size), tmp_path / "bundles" / f"vspw-b1-{text}")


def row(size, seconds, peak, written=None):
    return SizeRow(size, "b", Speed(np.array([seconds]), {}), peak, None, written, None)


def test_growth_is_the_slope_between_logarithms():
    rows = [row((480, 864), 0.1, 10**8), row((960, 1728), 0.4, 16 * 10**8, 5)]
    found = exponents(rows)
    assert found["p50 ms"] == pytest.approx(1)
    assert found["memory MB"] == pytest.approx(2)
    assert found["engine: MB written"] is None  # one row has none
    assert exponents(rows[:1])["p50 ms"] is None


@pytest.mark.thorough
def test_every_size_has_a_row_and_the_growth_is_told(made, command, tmp_path):
    told = ["--frames", 3, "--warmup", 9, "--json", "rows.json"]
    code, out, err = command("bench", "--sizes", ",".join(SIZES), *told)
    assert code == 0, err
    text = out.decode()
    assert "pixels^" in text
    rows = [json.loads(line) for line in (tmp_path / "rows.json").read_text().splitlines()]
    assert [tuple(row["size"]) for row in rows] == [(64, 96), (96, 160)]
    for each in rows:
        assert each["backend"] == "onnxruntime:cpu fp32"
        assert each["p50_ms"] > 0
        assert each["memory_MB"] > 10
        assert each["engine_MB_written"] is None


@pytest.mark.parametrize(
    ("given", "things"),
    [
        (["--sizes", "96x160"], ["--sizes"]),
        (["--sizes", "96x160,100x160"], ["100x160", 32]),
        (["--sizes", "96x160,x"], ["'x'", "HxW"]),
        (["bundles/b1", "--sizes", "96x160,64x96"], ["--sizes", "BUNDLE", "--size"]),
        (["--size", "96x160", "--sizes", "96x160,64x96"], ["--sizes", "BUNDLE", "--size"]),
    ],
)
def test_sizes_that_cannot_be_compared_are_refused(given, things, command, tmp_path):
    code, _, err = command("bench", *given)
    assert code == 2
    assert names(err, *things)
    assert not (tmp_path / "bundles").exists()
