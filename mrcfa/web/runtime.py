"""ONNX Runtime's build for browsers, the npm package onnxruntime-web at one version.

It is in no Python package. npm gets it from the registry that the user has set up, or the user
names a downloaded archive; either must have the published hash. The page itself needs no npm.
"""

import base64
import hashlib
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from mrcfa.errors import Damaged, NotFound, RuntimeFailed
from mrcfa.machine.files import scratch_folder, write_whole

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""The registry's hash of the archive, as `npm view onnxruntime-web@VERSION dist.integrity`."""
ARCHIVE = f"{PACKAGE}-{VERSION}.tgz"
FILES = (
    "ort.webgpu.min.mjs",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
"""Files of the archive that the page loads: three for WebGPU, and three for WASM alone."""
_NPM_S = 600


def runtime_files(archive: Path | None = None) -> dict[str, bytes]:
    """The content of `FILES`, from a downloaded archive or from npm.

    Scripts are named `.js`, because some hosts do not know `.mjs` for one.
    """
    content = packed() if archive is None else _read(archive)
    with tarfile.open(fileobj=BytesIO(content)) as members:
        return {
            name.replace(".mjs", ".js"): _member(members, f"package/dist/{name}") for name in FILES
        }


def packed() -> bytes:
    """The archive, fetched with npm."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotFound(
            f"the page needs {PACKAGE} {VERSION}, which npm gets, and npm is not installed; "
            f"install it, or run npm pack {PACKAGE}@{VERSION} on another machine and name the "
            f"file {ARCHIVE} with --runtime"
        )
    with scratch_folder() as folder:
        command = [npm, "pack", "--ignore-scripts", "--silent", f"{PACKAGE}@{VERSION}"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_NPM_S, check=False
            )
            fault = next((line for line in done.stderr.splitlines() if "error" in line), "")
        except subprocess.TimeoutExpired:
            fault = f"no answer in {_NPM_S} s"
        if not (folder / ARCHIVE).is_file():
            raise RuntimeFailed(
                f"npm cannot get {PACKAGE} {VERSION} ({fault.strip() or 'it gives no reason'}); "
                f"check its registry, or name a downloaded {ARCHIVE} with --runtime"
            )
        return _read(folder / ARCHIVE)


def fetch_archive(path: str) -> None:
    """Write the archive to a file."""
    write_whole(Path(path), packed())


def _read(archive: Path) -> bytes:
    if not archive.is_file():
        raise NotFound(f"{archive} does not exist; get it with: npm pack {PACKAGE}@{VERSION}")
    content = archive.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
        raise Damaged(
            f"{archive} is not {ARCHIVE} as it was published (its hash differs); get it with: "
            f"npm pack {PACKAGE}@{VERSION}"
        )
    return content


def _member(members: tarfile.TarFile, name: str) -> bytes:
    """A file of the archive, whose hash was checked, so that it is there."""
    file = members.extractfile(name)
    assert file is not None
    return file.read()
