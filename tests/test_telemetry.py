"""mrcfa sends nothing: ONNX Runtime's telemetry is off before it loads, in child processes too."""

import os
import shutil
import subprocess
import sys

import pytest

STREAM = """
import sys
import numpy as np
from mrcfa import Stream
stream = Stream(sys.argv[1], "onnxruntime:cpu")
stream(np.zeros((*stream.size, 3), np.uint8))
"""
EXPORT = "import mrcfa.export.proof, mrcfa.export.quantization.graphs"


@pytest.mark.parametrize(
    "words",
    [
        ("-c", STREAM, "BUNDLE"),
        ("-c", EXPORT),
        pytest.param(("-m", "mrcfa.cli", "doctor"), marks=pytest.mark.thorough),
    ],
    ids=["stream", "export", "doctor"],
)
def test_nothing_is_sent_and_nothing_about_the_machine_is_kept(words, bundle, tmp_path):
    home, calls = tmp_path / "home", tmp_path / "calls"
    home.mkdir()
    environment = {key: each for key, each in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    words = [str(bundle("b0")) if word == "BUNDLE" else word for word in words]
    strace = shutil.which("strace")
    traced = [strace, "-fqq", "-e", "trace=connect,sendto", "-o", str(calls)] if strace else []
    done = subprocess.run([*traced, sys.executable, *words], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert not [path for path in home.rglob("*") if "Microsoft" in path.parts]
    assert not strace or "AF_INET" not in calls.read_text()
