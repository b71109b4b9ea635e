"""Fixtures of all tests: golden weights and clips, bundles, a browser, the command line."""

import fcntl
import functools
import gc
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import authors_state
from fill import clip as make_clip

import mrcfa
from mrcfa import MRCFA, cli, load_weights, preset
from mrcfa.bundle.manifest import Output
from mrcfa.data.demo import WEIGHTS
from mrcfa.export.exporter import ExportOptions, export_bundle
from mrcfa.export.variants import VARIANTS
from mrcfa.model.config import Method
from mrcfa.training.checkpoints import read_facts

Make = Callable[[Path], object]
_OPTIONS = {field.name for field in fields(ExportOptions)}
ONE_BLOCK = (1, 1, 1, 1)
torch.set_num_threads(1)  # small tensors: more threads only wait for each other
os.environ["VK_ICD_FILENAMES"] = "/nowhere.json"  # WebGPU has the GPU that a test gives it
signal.signal(signal.SIGINT, signal.default_int_handler)  # `make test &` starts with it ignored
gc.set_threshold(100_000, 20, 100)  # an export makes millions of small objects and few cycles


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu",
        action="store_true",
        help="Run what the doubles show, and that alone, on a real GPU.",
    )


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        thorough = item.get_closest_marker("thorough")
        if "build" in getattr(item, "fixturenames", ()) and not thorough:
            item.add_marker(pytest.mark.cpp)
    if config.getoption("gpu"):
        on_gpu = {"driver", "double"}
        idle = [item for item in items if not on_gpu & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in items if item not in idle]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each reason why tests were not run: a skip is never a pass."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{reason} [{count} tests]")


@pytest.fixture(scope="session")
def clip() -> Callable[..., np.ndarray]:
    """`clip(frames, height, width, seed=0)`: uint8 frames (T, H, W, 3)."""
    made = functools.cache(make_clip)
    return lambda *told, **more: made(*told, **more).copy()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`checkpoint("b1")`: a file in the authors' layout with the golden weights.

    With `depths` it has the weights of the first blocks of each stage alone.
    """
    folder = tmp_path_factory.mktemp("checkpoints")

    def write(backbone: str, depths: tuple[int, ...] | None = None) -> Path:
        path = folder / str(depths) / f"{backbone}.pth"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            state = authors_state(backbone, depths=depths)
            torch.save({"meta": {"epoch": 1}, "state_dict": state}, path)
        return path

    return write


@pytest.fixture(scope="session")
def golden_model(checkpoint: Callable[..., Path]) -> Callable[..., MRCFA]:
    """`golden_model("b1")`: the reference model with the golden weights of `checkpoint`."""

    @functools.cache
    def build(backbone: str, depths: tuple[int, ...] | None = None) -> MRCFA:
        model = MRCFA(preset("vspw", backbone, **({"depths": depths} if depths else {})))
        load_weights(model, checkpoint(backbone, depths))
        return model

    return build


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Make], Path]:
    """`once("name", make)`: what `make(path)` writes, by whichever worker of a run comes first.

    Runs with one MRCFA_TEST_FILES share these files.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = Path(os.environ.get("MRCFA_TEST_FILES", root))

    def made(name: str, make: Make) -> Path:
        path, done = root / name, root / f"{name}.done"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(path)
                done.touch()
        return path

    return made


@pytest.fixture(scope="session")
def bundle(
    once: Callable[[str, Make], Path], checkpoint: Callable[..., Path]
) -> Callable[..., Path]:
    """`bundle("b0", output="logits")`: at 96×160 and with one block in each stage by default.

    VSPW bundles hold the golden weights; Cityscapes has none, so its are random. A graph of one
    block a stage takes half the time to trace and has every rewrite that a deeper one has.
    """

    def export(
        backbone: str,
        dataset: str = "vspw",
        output: str = "mask",
        variants: tuple[str, ...] = ("fp32", "fp16"),
        **changes: Any,
    ) -> Path:
        key = repr((backbone, dataset, output, variants, sorted(changes.items())))
        told = {name: changes.pop(name) for name in _OPTIONS & changes.keys()}
        config = preset(dataset, backbone, **{"size": (96, 160), "depths": ONE_BLOCK, **changes})
        told = {"frame": config.size, "output": Output(output), **told}
        told["variants"] = [VARIANTS[name] for name in variants]

        def make(path: Path) -> None:
            weights = checkpoint(backbone, config.depths) if dataset == "vspw" else None
            export_bundle(config, path, weights=weights, options=ExportOptions(**told))

        return once(f"{dataset}-{backbone}-{zlib.crc32(key.encode()):08x}", make)

    return export


@pytest.fixture(scope="session")
def demo(once: Callable[[str, Make], Path]) -> Callable[..., Path]:
    """`demo("fp32")`: the trained weights in the box at 96×160, for frames of 163×289."""

    def export(variant: str, streams: int = 1) -> Path:
        facts = read_facts(WEIGHTS)
        config = replace(facts.config, size=(96, 160))
        variants = [VARIANTS[variant]]
        told = ExportOptions((163, 289), variants=variants, labels=facts.labels, streams=streams)
        make = functools.partial(export_bundle, config, weights=WEIGHTS, seed=0, options=told)
        return once(f"demo-{variant}-{streams}", make)

    return export


@pytest.fixture(scope="session")
def baseline(bundle: Callable[..., Path]) -> Callable[[str], Path]:
    """`baseline("segformer")`: the paper's baselines, random, with keys on two grids."""
    return lambda method: bundle("b0", "cityscapes", method=Method(method), size=(64, 96))


@pytest.fixture(scope="session")
def tailored(bundle: Callable[..., Path]) -> Path:
    """A bundle with everything that an export can be told."""
    return bundle(
        "b0",
        frame=(107, 189),
        references=(4, 1),
        keep=0.3,
        variants=("fp32",),
        inline_functions=True,
        opset=17,
    )


@pytest.fixture
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that commands make have one block in each stage."""
    monkeypatch.setattr(mrcfa, "preset", functools.partial(preset, depths=ONE_BLOCK))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real one, without a window."""
    from browser import CHROMIUM, Browser  # aiohttp, which few tests need

    if CHROMIUM is None:
        pytest.skip("not run: chromium is not installed")
    with closing(Browser(tmp_path_factory.mktemp("browser"))) as opened:
        yield opened


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, bytes, str]]:
    """`command("run", …)` in an empty folder: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))

    def call(*words: object) -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "argv", ["mrcfa", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return ended.value.code, out, err.decode()

    return call


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield
    torch.set_num_threads(1)  # eager backends leave behind what they were told
