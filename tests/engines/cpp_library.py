"""How the tests build the C++ library, run it and damage bundles for it.

Everything is built with the ONNX Runtime library of the Python wheel and headers of the system or
of the folder that `engines/cpp/fetch-headers build/headers` fills. `make test-all` builds it again
with MRCFA_SANITIZE=address,undefined; MRCFA_SANITIZE=thread finds the races of threads.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrcfa.bundle import MANIFEST

REPOSITORY = Path(__file__).parents[2]
CPP = REPOSITORY / "engines" / "cpp"
HEADERS = REPOSITORY / "build" / "headers" / "usr" / "include"
SANITIZE = os.environ.get("MRCFA_SANITIZE", "OFF")
OPTIMIZED = ["-O0" if SANITIZE == "OFF" else "-O1", "-Werror"]
FLAGS = [*OPTIMIZED]
if SANITIZE != "OFF":
    FLAGS += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all"]
# ONNX Runtime's own threads were not compiled for ThreadSanitizer, which cannot judge them.
os.environ.setdefault("TSAN_OPTIONS", "ignore_noninstrumented_modules=1 halt_on_error=1")
CACHE = ["ccache"] if shutil.which("ccache") else []
os.environ.setdefault("CCACHE_BASEDIR", str(REPOSITORY))  # so that clones share what they compile
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
FRAMES, RESET = 24, 13
"""Number of frames, and the frame of the reset: both parts fill the memory of nine frames."""

Once = Callable[[str, Callable[[Path], object]], Path]
Segment = Callable[..., subprocess.CompletedProcess[bytes]]


def include_of(header: str) -> Path:
    """The folder of a header, as the compiler would find it; a missing one skips the test.

    ONNXRUNTIME_INCLUDE names a folder of other headers of ONNX Runtime.
    """
    other = Path(os.environ.get("ONNXRUNTIME_INCLUDE", ""))
    if os.environ.get("ONNXRUNTIME_INCLUDE") and (other / header).is_file():
        return other
    for folder in (HEADERS, Path("/usr/include"), Path("/usr/local/include")):
        for place in (folder, folder / "onnxruntime", folder / "onnxruntime/core/session"):
            if (place / header).is_file():
                return place
    what = "ONNX Runtime" if header.startswith("onnxruntime") else header.partition("/")[0]
    pytest.skip(f"C++: not run (no {what} headers)")


def run(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def compiled_object(target: Path, source: Path, *words: Any) -> Path:
    options = (*WARNINGS, *FLAGS, "-pthread", "-I", CPP / "include", *words)
    run(*CACHE, "c++", *options, "-c", "-o", target, source)
    return target


def compiled(target: Path, *words: Any) -> Path:
    """A program or a library. Only compilers are cached, so sources become objects first."""
    sources = [word for word in words if Path(word).suffix == ".cpp"]
    binaries = [
        word for word in words if str(word).startswith(("-l", "-L", "-Wl")) or _is_binary(word)
    ]
    options = [word for word in words if word not in sources and word not in binaries]
    objects = [
        compiled_object(target.with_name(f"{target.name}-{source.stem}.o"), source, *options)
        for source in sources
    ]
    run("c++", *FLAGS, "-o", target, *objects, *binaries, "-pthread")
    return target


def _is_binary(word: Any) -> bool:
    return Path(word).suffix == ".o" or ".so" in Path(word).suffixes


def runner_of(program: Path) -> Segment:
    """`segment(bundle, "--raw", "96x160", frames=array)`; a sanitizer's word fails the test."""

    def segment(*words: Any, frames: np.ndarray | bytes = b"", **environment: str) -> Any:
        data = frames if isinstance(frames, bytes) else frames.tobytes()
        command = [str(word) for word in (program, *words)]
        done = subprocess.run(
            command, input=data, capture_output=True, env={**os.environ, **environment}
        )
        said = done.stderr.decode()
        assert "Sanitizer" not in said, said
        assert "runtime error" not in said, said
        return done

    return segment


def masks_in(done: subprocess.CompletedProcess[bytes], frames: np.ndarray) -> np.ndarray:
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.uint8).reshape(frames.shape[:3])


def linked(path: Path, target: Path) -> Path:
    return Path(shutil.copytree(path, target, copy_function=os.link))


def write(file: Path, content: str | bytes) -> None:
    """Into a new file, for the old one is shared with the bundle that it was linked from."""
    file.unlink()
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def edit(path: Path, **changes: Any) -> None:
    content = json.loads((path / MANIFEST).read_text())
    write(path / MANIFEST, json.dumps({**content, **changes}))


TENSORRT_SOURCES = [
    CPP / f"src/{name}.cpp"
    for name in ("opened", "tensorrt", "lane", "engines", "context", "runtime_cache")
]
FAKE_DRIVER = CPP / "test/fake_gpu/driver.cpp"
_DOUBLES = ("-I", CPP / "test/fake_gpu", "-I", CPP / "src")
FAKE = (*_DOUBLES, '-DMRCFA_TENSORRT="tensorrt"')
"""Compiler words for a TensorRT and a CUDA that are made of the CPU."""
ONNXRUNTIME_SOURCES = ("onnxruntime", "sessions", "vulkan", "webgpu")
FAKE_RTX = (*_DOUBLES, '-DMRCFA_TENSORRT="rtx"', "-DFAKE_RTX")


def library_objects(build: Path, *more: str) -> list[Path]:
    """The objects of the library without driver and backends, and those of more sources."""
    folder = build / "CMakeFiles"
    names = ("stream", "streams", "logits", "notice", *more)
    objects = [folder / f"mrcfa.dir/src/{name}.cpp.o" for name in names]
    return [*folder.glob("mrcfa_core.dir/src/*.o"), *objects]


def tool(build: Path) -> Path:
    return build / "CMakeFiles/mrcfa-segment.dir/tool/segment.cpp.o"


def with_engines(path: Path, *targets: list[int], **changes: Any) -> Path:
    """Engines for the fake GPU, which are ONNX files; FP32 and FP16 for each list of targets."""
    engine = {"flavour": "tensorrt", "tensorrt": "10.3.0", "plugin": None, "layers": None}
    files = {
        "fp32": {"encoder": "encoder.onnx", "decoder": "decoder.onnx"},
        "fp16": {"encoder": "encoder.fp16.onnx", "decoder": "decoder.fp16.onnx"},
    }
    engines = [
        {
            **engine,
            "compute_capabilities": capabilities,
            "precision": name,
            "variant": name,
            **parts,
            **changes,
        }
        for capabilities in targets or ([75],)
        for name, parts in files.items()
    ]
    edit(path, engines=engines)
    return path
