"""The docs' commands do what they say: blocks after `<!-- run -->` run in a copy of the clone.

The blocks of a page are one shell. `sudo apt install` and `pip install` change no machine here,
they say whether the packages are there; and GStreamer sees the plugins of those alone. Frames are
96×160 instead of the sizes that a reader gets.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("engines/*/README.md")]
BLOCK = re.compile(r"^<!-- run -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALLER = {
    "mrcfa sample sample": "mrcfa sample sample --size 96x160",
    "mrcfa export --demo": "mrcfa export --demo --size 96x160",
    "864x480": "160x96",
}
"""Words of the pages, and the words that are run instead of them."""
NOT_RUN = 77
SUDO = rf"""#!/bin/bash
[ "$1 $2" = "apt install" ] || {{ echo "sudo $*: only apt install is known here" >&2; exit 1; }}
shift 2
for package; do
  dpkg -s "$package" > /dev/null 2>&1 || {{ echo "no package $package"; exit {NOT_RUN}; }}
  dpkg -L "$package" | grep '/gstreamer-1.0/libgst[^/]*\.so$' \
    | xargs -r ln -sft "$GST_PLUGIN_SYSTEM_PATH"
done
"""
PIP = f"""#!{sys.executable}
import re, sys
from importlib.metadata import metadata
extras = re.fullmatch(r"install \\.\\[(.*)\\]", " ".join(sys.argv[1:]))[1].split(",")
sys.exit(sorted({{*extras}} - {{*metadata("mrcfa").get_all("Provides-Extra")}}) or 0)
"""
Run = Callable[[Path, str], str]


def marked(page: str) -> str:
    return "".join(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))


def small(page: str) -> str:
    """The page's commands with small frames."""
    commands = marked(page)
    for written, run in SMALLER.items():
        commands = commands.replace(written, run)
    return commands


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run(clone, script)`: what bash prints, whose failure fails the test."""
    tools, plugins = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("plugins")
    for name, text in (("sudo", SUDO), ("pip", PIP)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for core in Path("/usr/lib").glob("*/gstreamer-1.0/libgstcore*.so"):
        (plugins / core.name).symlink_to(core)
    environment = os.environ | {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "GST_PLUGIN_SYSTEM_PATH": str(plugins),
        "GST_REGISTRY": str(plugins / "registry.bin"),
        "OMP_NUM_THREADS": "1",
    }

    def done(clone: Path, script: str) -> str:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate()
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == NOT_RUN:
            pytest.skip(f"docs: not run ({printed.splitlines()[-1]})")
        assert process.returncode == 0, printed
        return printed

    return done


def copy_of_the_clone(target: Path) -> None:
    left = shutil.ignore_patterns(".*", "build", "bundles", "runs", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, target, ignore=left)
    (target / "build").mkdir()
    for fetched in ("headers", "triton"):
        if (ROOT / "build" / fetched).is_dir():
            (target / "build" / fetched).symlink_to(ROOT / "build" / fetched)


@pytest.fixture(scope="module")
def clone(once: Callable[..., Path], run: Run) -> Path:
    """A copy of the clone in which the first steps of README were made."""

    def make(target: Path) -> None:
        copy_of_the_clone(target)
        run(target, small("README.md"))

    return once("clone", make)


def frames(video: Path) -> np.ndarray:
    with av.open(str(video)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_every_marked_block_is_in_a_page_that_is_run():
    found = {str(page.relative_to(ROOT)) for page in PAGES if marked(str(page.relative_to(ROOT)))}
    assert found == {
        "README.md",
        "docs/serving.md",
        "engines/cpp/README.md",
        "engines/gstreamer/README.md",
    }
    for page in PAGES:
        text = page.read_text()
        assert f"\n{text}".count("\n<!-- run -->") == len(BLOCK.findall(text)), page


def test_what_is_replaced_to_save_time_is_in_the_pages():
    commands = "".join(marked(str(page.relative_to(ROOT))) for page in PAGES)
    assert all(written in commands for written in SMALLER)


def test_ci_installs_what_the_pages_do():
    listed = (ROOT / ".ci" / "run").read_text()
    (packages,) = re.findall(r"^packages=\(.*?^\)", listed, re.MULTILINE | re.DOTALL)
    script = f'{packages}\nprintf "%s\\n" "${{packages[@]}}"'
    installed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    for page in PAGES:
        text = marked(str(page.relative_to(ROOT))).replace("\\\n", " ")
        for line in re.findall(r"^sudo apt install (.*)$", text, re.MULTILINE):
            assert set(line.split()) <= set(installed.stdout.split()), page


@pytest.mark.thorough
def test_the_first_steps_of_readme(clone):
    assert frames(clone / "masks.mp4").shape == (24, 96, 160, 3)
    assert len(list((clone / "masks").glob("*.png"))) == 24


@pytest.mark.thorough
def test_the_page_on_cpp_and_then_the_one_on_gstreamer(clone, run):
    if not (ROOT / "build" / "headers").is_dir():
        pytest.skip("C++: not run (no ONNX Runtime headers)")
    run(clone, small("engines/cpp/README.md"))
    assert len(frames(clone / "masks-by-cpp.mp4")) == 24
    printed = run(clone, small("engines/gstreamer/README.md"))
    assert printed.count("pixels of the classes") == 24
    overlay = frames(clone / "overlay.mp4")
    assert overlay.shape == (24, 96, 160, 3)
    masks = sorted(clone.glob("mask-*.png"))
    assert len(masks) == 24
    assert len(np.unique(np.asarray(Image.open(masks[5])))) > 2


@pytest.mark.thorough
def test_the_page_on_serving(clone, run):
    if not (ROOT / "build" / "triton").is_dir():
        pytest.skip("Triton: not run (make build/triton brings the server, for Linux on x86-64)")
    run(clone, small("docs/serving.md"))
    served, local = frames(clone / "served.mp4"), frames(clone / "masks.mp4")
    assert np.abs(served - local.astype(int)).mean() < 1


@pytest.mark.thorough
def test_the_newcomers_path_from_videos_with_masks_to_masks_and_logits(tmp_path, run):
    run(tmp_path, f"{ROOT / 'examples' / 'newcomer.sh'} mine")
    made = tmp_path / "mine"
    mask = np.asarray(Image.open(made / "mask.png"))
    assert mask.shape == (96, 160)
    assert mask.max() < 12
    assert len(list((made / "masks").glob("*.png"))) == 24
    assert len(frames(made / "street-masks.mp4")) == 24
    lines = (made / "runs/mine/log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["iteration"] == 100
    logits = np.load(made / "logits.npy")
    assert logits.shape == (12, 24, 40)
    assert np.isfinite(logits).all()
