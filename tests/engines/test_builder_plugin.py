"""When a build takes the plugin mrcfa::SelectTokens, and what it wants for it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import plugin_twin
import pytest
from naming import names, naming
from tiny_bundle import build, tiny_decoder

from mrcfa.bundle import Bundle
from mrcfa.bundle.flavours import PLUGIN_NAME, TOPK_LIMIT
from mrcfa.engines.choices import PluginUse
from mrcfa.errors import MrcfaError, Unsupported
from mrcfa.export.select_tokens import SelectTokens

pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")


def build_with_twin(path, plugin):
    """The failure of a build in a process of its own, where the plugin may stay registered."""
    command = [sys.executable, plugin_twin.__file__, path, plugin]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def test_more_tokens_than_topk_takes_build_with_the_plugin_alone(tiny):
    path = tiny(size=(2048, 2048), keep=1.0)
    with pytest.raises(Unsupported, match=naming(4096, TOPK_LIMIT, "--plugin auto")):
        build(path, plugin=PluginUse.NEVER)
    with pytest.raises(MrcfaError, match=naming(PLUGIN_NAME, "engines/plugin", "--plugin-library")):
        build(path)
    assert build_with_twin(path, "auto") == ""
    (engine,) = Bundle.open(path).manifest.engines
    assert engine.plugin == "mrcfa::SelectTokens 1"
    plan = Bundle.open(path).file(engine.decoder).read_bytes()
    assert b"SelectTokens" in plan
    assert np.int32(4096).tobytes() in plan


def test_a_small_selection_takes_the_plugin_where_it_is_asked_for(tiny):
    path = tiny()
    assert build_with_twin(path, "always") == ""
    assert Bundle.open(path).manifest.engines[0].plugin == "mrcfa::SelectTokens 1"


def test_a_graph_without_the_call_cannot_take_the_plugin(tiny):
    selection = SelectTokens(12, 5, 3, 5, 1)
    path = tiny(onnx.inliner.inline_local_functions(tiny_decoder(selection)))
    assert names(build_with_twin(path, "always"), "decoder.fp16.onnx", "mrcfa::SelectTokens")
    assert not Bundle.open(path).manifest.engines


def test_always_takes_the_plugin_and_wants_its_library(tiny, monkeypatch):
    path = tiny()
    with pytest.raises(MrcfaError, match=naming(PLUGIN_NAME, "--plugin-library")):
        build(path, plugin=PluginUse.ALWAYS)
    with pytest.raises(MrcfaError, match=naming("nowhere.so")):
        build(path, plugin=PluginUse.ALWAYS, plugin_library=Path("nowhere.so"))
    monkeypatch.setenv("MRCFA_PLUGIN_LIBRARY", str(path / "manifest.json"))
    with pytest.raises(MrcfaError, match=naming("manifest.json", PLUGIN_NAME, "API Usage Error")):
        build(path, plugin=PluginUse.ALWAYS)
