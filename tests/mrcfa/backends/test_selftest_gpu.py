"""`mrcfa selftest` and `mrcfa build --warm` with engines, on a GPU made of host memory."""

import re
import textwrap
from dataclasses import replace
from itertools import islice
from pathlib import Path

import fake_gpu
import pytest
from naming import naming

from mrcfa.bundle import Bundle
from mrcfa.engines.warm import warmed
from mrcfa.machine import hardware
from mrcfa.machine.hardware import Gpu
from mrcfa.selftest.line import Outcome
from mrcfa.selftest.processes import lines_of, pycuda_line, start_line
from mrcfa.selftest.stream_checks import checked
from mrcfa.selftest.ways import ways
from mrcfa.stream.stream import Stream


@pytest.fixture
def subprocesses(tmp_path, monkeypatch):
    """Processes that are started find the same imagined GPU."""
    site = tmp_path / "site"
    site.mkdir()
    doubles = Path(fake_gpu.__file__).parent
    start = f"""
        import sys
        sys.path.append({str(doubles)!r})
        import fake_gpu
        device = fake_gpu.Driver()
        sys.modules["cuda.bindings.driver"] = device
        sys.modules["tensorrt_rtx"] = fake_gpu.fake_tensorrt(device, "tensorrt_rtx", "1.7.1.116")
    """
    (site / "sitecustomize.py").write_text(textwrap.dedent(start))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    return site


def engine_way(path):
    bundle = Bundle.open(path)
    (way,) = (way for way in ways(bundle) if way.engine is not None)
    return bundle, way


def test_an_engine_on_its_gpu_passes_every_check(driver, built):
    lines = list(checked(*engine_way(built()), gpus=1))
    assert [(line.check, line.outcome.value) for line in lines] == [
        ("engine", "works"),
        ("masks", "works"),
        ("CUDA graphs", "works"),
        ("no CUDA graphs", "works"),
        ("on the GPU", "works"),
        ("two in flight", "works"),
        ("two threads", "works"),
        ("reset", "works"),
        ("second GPU", "not run"),
    ], lines
    assert f"sm{driver.sm}, {driver.device_name}" in lines[1].facts["backend"]
    assert {part: len(nodes) for part, nodes in lines[2].facts["nodes"].items()} == {
        "encoder": 1,
        "decoder": 2,
    }
    assert all(nodes > 0 for part in lines[2].facts["nodes"].values() for nodes in part)
    assert driver.launches > 0


@pytest.mark.parametrize("failing", ["capture_fails", "captures_nothing"])
def test_graphs_that_cannot_be_recorded_fail_the_self_test(failing, double, built):
    setattr(double, failing, True)
    _, masks, graphs = islice(checked(*engine_way(built())), 3)
    assert (masks.check, masks.outcome) == ("masks", Outcome.WORKS)
    assert (graphs.check, graphs.outcome) == ("CUDA graphs", Outcome.FAILS)
    assert graphs.facts["nodes"] == {"encoder": [0], "decoder": [0, 0]}


@pytest.mark.thorough
def test_a_second_gpu_is_held_to_the_masks_of_the_first(double, built, monkeypatch):
    double.devices, asked, real = 2, [], double.cuDeviceGet
    monkeypatch.setattr(
        double, "cuDeviceGet", lambda number: (asked.append(number), real(number))[1], raising=False
    )
    *_, line = checked(*engine_way(built()), gpus=2)
    assert (line.check, line.outcome) == ("second GPU", Outcome.WORKS)
    assert re.search(naming("GPU 1", "GPU 0"), line.words)
    assert asked[-1] == 1


def test_an_engine_for_another_gpu_is_not_run_and_says_what_to_build(driver, built):
    (line,) = checked(*engine_way(built(compute_capabilities=(53, 62))))
    assert line.outcome is Outcome.NOT_RUN
    things = (driver.device_name, f"sm_{driver.sm}", "mrcfa build")
    assert re.search(naming(*things), line.words)


def test_an_engine_that_does_not_load_fails_with_tensorrts_words(double, built):
    (line,) = checked(*engine_way(built(content=b"no plan")))
    assert line.outcome is Outcome.FAILS
    things = ("encoder", "1.7.1.116", "Serialization: bad magic tag")
    assert re.search(naming(*things), line.words)
    assert "mrcfa build" in line.remedy


def test_an_engine_of_other_tensors_fails_and_names_them(double, built, bundle):
    other = Bundle.open(bundle("b0")).file("encoder.onnx").read_bytes()
    (line,) = checked(*engine_way(built(content=other)))
    assert line.outcome is Outcome.FAILS
    things = ("base", "float32 [1, 124, 12, 20]", "float16 [1, 124, 12, 20]")
    assert re.search(naming("encoder", *things), line.words)


@pytest.mark.thorough
def test_a_reset_that_forgets_nothing_is_found(driver, built, monkeypatch):
    monkeypatch.setattr(Stream, "reset", lambda self: None)
    lines = {line.check: line for line in checked(*engine_way(built()))}
    assert lines["reset"].outcome is Outcome.FAILS
    assert lines["reset"].facts["same_as_before"] < 1


@pytest.mark.thorough
def test_a_process_with_an_engine_ends_well_and_starts_are_timed(
    double, built, subprocesses, monkeypatch
):
    path = built(flavour="tensorrt")
    site = (subprocesses / "sitecustomize.py").read_text()
    (subprocesses / "sitecustomize.py").write_text(
        site.replace('"tensorrt_rtx"', '"tensorrt"')  # the flavour without a cache
    )
    bundle, way = engine_way(path)
    lines = {line.check: line for line in lines_of(bundle, way, 2)}
    assert lines["masks"].outcome is Outcome.WORKS, lines
    assert lines["exit"].outcome is Outcome.WORKS, lines["exit"]
    start = start_line(bundle, way)
    assert start.outcome is Outcome.WORKS, start
    assert start.facts["first_s"] > 0
    missing = pycuda_line(bundle, way)
    assert missing.outcome is Outcome.NOT_RUN
    assert re.search(naming("pycuda", 'pip install ".[pycuda]"'), missing.words)
    (subprocesses / "pycuda").mkdir()
    (subprocesses / "pycuda" / "__init__.py").touch()
    context = "import sys; sys.modules['cuda.bindings.driver'].cuCtxPushCurrent(0xD1)"
    (subprocesses / "pycuda" / "autoinit.py").write_text(context)
    monkeypatch.syspath_prepend(subprocesses)
    assert pycuda_line(bundle, way).outcome is Outcome.WORKS
    (subprocesses / "pycuda" / "autoinit.py").write_text(
        "import atexit, os; atexit.register(os.abort)"
    )
    crashed = pycuda_line(bundle, way)
    assert crashed.outcome is Outcome.FAILS
    assert "SIGABRT" in crashed.words


def test_warming_opens_every_engine_that_fits_and_names_those_that_do_not(
    double, built, monkeypatch
):
    monkeypatch.setattr(hardware, "gpus", lambda: [Gpu("Quadro RTX 6000", 75)])
    path = built()
    opened = Bundle.open(path)
    (engine,) = opened.manifest.engines
    contents = {f"ada-{name}": opened.file(name).read_bytes() for name in (engine.encoder,)}
    (name,) = contents
    opened.with_engine(
        replace(engine, compute_capabilities=(89,), encoder=name, decoder=name), contents
    )
    first, second = warmed(path)
    assert re.search(naming("rtx fp16 sm75"), first)
    assert "not run" not in first
    assert re.search(naming("rtx fp16 sm89", "not run", "sm_89", "sm_75"), second)
