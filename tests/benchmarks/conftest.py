"""One whole benchmark of a small bundle, which several tests look at from different sides.

The others take `quick` ones of their own."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import benchmarks.bench
from benchmarks.bench import bench
from benchmarks.footprint import Footprint
from benchmarks.result import BenchOptions, Result, Row

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def peer_cache(once: Once) -> Iterator[Path]:
    """The user's cache stays out of it, and the peer is exported once."""
    folder = once("cache", Path.mkdir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def benched(once: Once, bundle: Callable[..., Path], peer_cache: Path) -> Result:
    """All backends on this machine. Footprints, which take processes, have a test of their own."""

    def make(path: Path) -> None:
        options = BenchOptions(frames=4, warmup=9, drift=100, threads=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                benchmarks.bench, "footprint", lambda *_: Footprint(1.25, 190_000_000, None)
            )
            path.write_bytes(pickle.dumps(bench(bundle("b0"), options)))

    result: Result = pickle.loads(once("benched", make).read_bytes())
    return result


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> BenchOptions:
    """Options of a benchmark that takes seconds; it starts no process for footprints."""
    monkeypatch.setattr(benchmarks.bench, "footprint", lambda *_: None)
    return BenchOptions(
        backends=["onnxruntime:cpu"], frames=3, warmup=9, drift=0, threads=1, peer=False
    )


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Result], dict[str, Row]]:
    """`rows_of(result)`: its rows by name."""
    return lambda result: {row.name: row for row in result.rows}
