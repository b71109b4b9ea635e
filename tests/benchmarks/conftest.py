"""One whole benchmark of a small bundle, which several tests look at from different sides.

The others take `quick` ones of their own."""

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fake_gpu
import pytest

import mrcfa.benchmarks.bench
from mrcfa.benchmarks.bench import bench
from mrcfa.benchmarks.footprint import Footprint
from mrcfa.benchmarks.result import BenchOptions, Result, Row
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Engine

Once = Callable[[str, Callable[[Path], object]], Path]


def mark_early(patch: pytest.MonkeyPatch) -> None:
    """Errors are compared at frame 40 already, which shows the picture of frame 10."""
    for place in ("mrcfa.benchmarks.parity.MARKS", "mrcfa.benchmarks.result.MARKS"):
        patch.setattr(place, (10, 40, 1000))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch, quick: BenchOptions) -> BenchOptions:
    """Options with a long way that is not long."""
    mark_early(monkeypatch)
    return replace(quick, drift=40)


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
        with pytest.MonkeyPatch.context() as patch:
            mark_early(patch)
            options = BenchOptions(frames=4, warmup=9, drift=40, threads=1)
            patch.setattr(
                mrcfa.benchmarks.bench, "footprint", lambda *_: Footprint(1.25, 190_000_000, None)
            )
            path.write_bytes(pickle.dumps(bench(bundle("b0"), options)))

    result: Result = pickle.loads(once("benched", make).read_bytes())
    return result


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> BenchOptions:
    """Options of a benchmark that takes seconds; it starts no process for footprints."""
    monkeypatch.setattr(mrcfa.benchmarks.bench, "footprint", lambda *_: None)
    return BenchOptions(
        backends=["onnxruntime:cpu"], frames=3, warmup=9, drift=0, threads=1, peer=False
    )


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Result], dict[str, Row]]:
    """`rows_of(result)`: its rows by name."""
    return lambda result: {row.name: row for row in result.rows}


@pytest.fixture
def with_engine(
    bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[Bundle, Engine]]:
    """`with_engine(encoder, decoder)`: a bundle with an engine for the fake GPU.

    TensorRT's profiler tells what is given for each graph: layers and their milliseconds.
    """
    driver = fake_gpu.Driver()
    runtime = fake_gpu.fake_tensorrt(driver, "tensorrt_rtx", "1.7.1.116")
    runtime.IProfiler = object
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", runtime)
    execute = fake_gpu.IExecutionContext.execute_async_v3

    def built(encoder: dict[str, float], decoder: dict[str, float]) -> tuple[Bundle, Engine]:
        def profiled(self: fake_gpu.IExecutionContext, stream_handle: int) -> bool:
            done = execute(self, stream_handle)
            if hasattr(self, "profiler"):
                layers = encoder if "image" in self._addresses else decoder
                for layer, milliseconds in layers.items():
                    self.profiler.report_layer_time(layer, milliseconds)
            return done

        monkeypatch.setattr(fake_gpu.IExecutionContext, "execute_async_v3", profiled)
        shutil.copytree(bundle("b0"), tmp_path / "bundle")
        opened = Bundle.open(tmp_path / "bundle")
        plans = {
            f"{part}.engine": opened.file(graph.file).read_bytes()
            for part, graph in opened.manifest.variants["fp16"].graphs.items()
        }
        engine = Engine("rtx", "1.7.1.116", (75,), "fp16", "fp16", None, *plans)
        return opened.with_engine(engine, plans), engine

    return built
