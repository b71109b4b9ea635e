"""How the tests run GStreamer's programs and their own with the element `mrcfa`.

Where the element is built with sanitizers, other programs get their runtime preloaded; leaks are
looked for in the tests' own programs, because others never free all they have.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cpp_library import CPP, REPOSITORY, SANITIZE, compiled, run

GSTREAMER = REPOSITORY / "engines" / "gstreamer"
PACKAGES = ["gstreamer-1.0 >= 1.20.3", "gstreamer-video-1.0", "gstreamer-check-1.0"]
PLUGINS = [
    *("app", "coreelements", "coretracers", "isomp4", "playback", "png", "typefindfunctions"),
    *("videoconvertscale", "videotestsrc"),
]
RUNTIME = {"OFF": (), "thread": ("libtsan.so", "libstdc++.so")}.get(
    SANITIZE, ("libasan.so", "libstdc++.so")
)


def missing() -> str:
    """The parts of GStreamer that this machine lacks; empty if all are there."""
    for program in ("pkg-config", "gst-launch-1.0", "gst-inspect-1.0"):
        if shutil.which(program) is None:
            return f"no {program}"
    if subprocess.run(["pkg-config", "--exists", *PACKAGES]).returncode:
        return "no headers of GStreamer >= 1.20.3"
    absent = [name for name in PLUGINS if not _plugin(name).is_file()]
    return f"no plugins {', '.join(absent)}" if absent else ""


def _plugin(name: str) -> Path:
    folder = run("pkg-config", "--variable=pluginsdir", "gstreamer-1.0").stdout.strip()
    return Path(folder) / f"libgst{name}.so"


@dataclass(frozen=True)
class Gst:
    """GStreamer with the element of a build, and no more plugins than the tests need."""

    build: Path
    folder: Path

    @staticmethod
    def prepare(folder: Path) -> None:
        folder.mkdir()
        for name in PLUGINS:
            (folder / f"libgst{name}.so").symlink_to(_plugin(name))

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "GST_PLUGIN_SYSTEM_PATH": str(self.folder),
            "GST_PLUGIN_PATH": str(self.build / "gstreamer"),
            "GST_REGISTRY": str(self.folder / "registry.bin"),
            "GST_REGISTRY_FORK": "no",
            "G_SLICE": "always-malloc",  # where GLib keeps memory of its own, leaks are not seen
        }

    def call(self, *words: Any, **environment: str) -> subprocess.CompletedProcess[str]:
        """A program that knows nothing of sanitizers."""
        libraries = [run("c++", f"-print-file-name={name}").stdout.strip() for name in RUNTIME]
        told = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            env={**self.environment, **told, **environment},
        )
        assert "Sanitizer" not in done.stderr, done.stderr
        return done

    def launch(self, pipeline: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.call("gst-launch-1.0", "-q", *pipeline.split(), **environment)

    def play(self, pipeline: str) -> str:
        """Runs to the end; what was said on standard error."""
        done = self.launch(pipeline)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def program(self, target: Path, name: str) -> Path:
        """One of engines/gstreamer/test, which fails if it leaks."""
        flags = run("pkg-config", "--cflags", "--libs", *PACKAGES).stdout.split()
        system = ["-isystem" + flag[2:] if flag.startswith("-I") else flag for flag in flags]
        return compiled(
            target,
            *("-I", GSTREAMER / "include", "-I", CPP / "test", GSTREAMER / "test" / f"{name}.cpp"),
            *system,
            *(self.build / "libmrcfa.so", f"-Wl,-rpath,{self.build}"),
        )


def pictures(file: Path, height: int, width: int, channels: int = 1) -> np.ndarray:
    """Raw frames of a filesink, (T, h, w, c) or (T, h, w); GStreamer's rows are multiples of 4."""
    stride = -(-width * channels // 4) * 4
    rows = np.fromfile(file, np.uint8).reshape(-1, height, stride)[..., : width * channels]
    return rows.reshape(-1, height, width, *([channels] if channels > 1 else []))
