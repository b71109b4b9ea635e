"""The runtime for browsers: it is the published one, from npm or from a file, or an error."""

import base64
import hashlib
import io
import tarfile

import pytest
from naming import naming

from mrcfa.errors import Damaged, NotFound, RuntimeFailed
from mrcfa.web import runtime
from mrcfa.web.runtime import ARCHIVE, FILES, VERSION, runtime_files

CONTENT = {name.replace(".mjs", ".js"): name.encode() for name in FILES}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A small archive that counts as the published one."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as members:
        for name in FILES:
            info = tarfile.TarInfo(f"package/dist/{name}")
            info.size = len(name)
            members.addfile(info, io.BytesIO(name.encode()))
    path = tmp_path / "downloaded.tgz"
    path.write_bytes(content.getvalue())
    digest = hashlib.sha512(content.getvalue()).digest()
    monkeypatch.setattr(runtime, "SHA512", base64.b64encode(digest).decode())
    return path


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """`npm(script)`: the only program on the path, run by the shell."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install(script):
        path = tmp_path / "bin" / "npm"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return install


def test_a_downloaded_archive_has_the_files_of_the_page(archive):
    assert runtime_files(archive) == CONTENT
    assert {name.rpartition(".")[2] for name in CONTENT} == {"js", "wasm"}


def test_npm_gets_the_archive_of_this_version(archive, npm):
    npm(f'[ "$1 $4" = "pack onnxruntime-web@{VERSION}" ] && /bin/cp {archive} {ARCHIVE}')
    assert runtime_files() == CONTENT


def test_another_archive_is_refused(archive, npm):
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(Damaged, match=naming(archive, "hash", "npm pack")):
        runtime_files(archive)
    npm(f"/bin/cp {archive} {ARCHIVE}")
    with pytest.raises(Damaged, match=naming(ARCHIVE, "hash")):
        runtime_files()


def test_without_npm_the_error_says_what_is_needed(npm):
    with pytest.raises(NotFound, match=naming("npm", f"onnxruntime-web@{VERSION}", "--runtime")):
        runtime_files()


def test_npm_that_fails_is_told_with_its_reason(npm):
    npm("echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(RuntimeFailed, match=naming("ENOTFOUND", "registry", "--runtime")):
        runtime_files()


def test_an_archive_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path / "none.tgz")):
        runtime_files(tmp_path / "none.tgz")
