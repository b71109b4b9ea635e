"""The commit of the code that runs, for a clone and for installations of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mrcfa

PACKAGE = Path(mrcfa.__file__).parent
FILES = ("__init__.py", "machine/__init__.py", "machine/commit.py")
CODE = "from mrcfa.machine.commit import commit; print(commit())"


def git(clone, *words):
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    done = subprocess.run(
        ["git", "-C", clone, *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A clone with the code that finds the commit, and no other."""
    for name in FILES:
        (tmp_path / "clone/mrcfa" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / "clone/mrcfa" / name)
    git(tmp_path / "clone", "init", "--quiet")
    git(tmp_path / "clone", "add", ".")
    git(tmp_path / "clone", "commit", "--quiet", "-m", "first")
    return tmp_path / "clone"


@pytest.fixture
def installed(clone, tmp_path):
    """`installed(origin)`: a copy of the package with pip's record of where it came from."""

    def install(origin):
        place = tmp_path / "site-packages"
        shutil.copytree(clone / "mrcfa", place / "mrcfa")
        record = place / "mrcfa-0.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text("Metadata-Version: 2.1\nName: mrcfa\nVersion: 0.0\n")
        (record / "direct_url.json").write_text(json.dumps(origin))
        return place

    return install


def commit_in(folder):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-S", "-c", CODE]  # without this clone's own installation
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_clone_has_its_commit_and_says_if_files_were_changed(clone):
    head = git(clone, "rev-parse", "HEAD")
    assert commit_in(clone) == head
    (clone / "mrcfa/machine/new.py").touch()
    git(clone, "add", ".")
    assert commit_in(clone) == f"{head} with changes"


def test_an_installation_from_a_clone_has_its_commit_while_the_code_is_the_same(clone, installed):
    place = installed({"url": clone.as_uri(), "dir_info": {}})
    assert commit_in(place) == git(clone, "rev-parse", "HEAD")
    (clone / "mrcfa/machine/commit.py").write_text("# changed since")
    assert commit_in(place) == "None"


def test_an_installation_from_git_has_the_commit_that_pip_recorded(installed):
    origin = {"url": "https://example.org/mrcfa", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    assert commit_in(installed(origin)) == "c0ffee"


def test_the_commit_of_another_repository_around_the_installation_is_not_taken(clone, installed):
    place = installed({"url": "https://example.org/mrcfa-0.0.zip"})
    git(place, "init", "--quiet")
    (place / ".git").rename(place.parent / ".git")
    assert commit_in(place) == "None"
