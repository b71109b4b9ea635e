"""Bundles that TensorRT-RTX builds in a second, and how the tests build them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from mrcfa import preset
from mrcfa.bundle import write_bundle
from mrcfa.bundle.manifest import (
    Device,
    Graph,
    Limits,
    Manifest,
    Output,
    TensorSpec,
    Variant,
    Weights,
)
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.target import choose_target
from mrcfa.export.select_tokens import function
from mrcfa.export.tensors import selection as selection_of

FRAME_NUMBER = TensorSpec("frame", "int32", (1,))
BASE = TensorSpec("base", "float16", (1, 8, 8, 3))
ENDS = {
    "encoder": ((TensorSpec("image", "uint8", (1, 8, 8, 3)),), (BASE,)),
    "decoder": (
        (BASE, FRAME_NUMBER),
        (TensorSpec("mask", "uint8", (1, 8, 8)), replace(FRAME_NUMBER, name="frame_out")),
    ),
}
"""Tensors in the manifest; the decoder that is built has fewer."""


def model(nodes, inputs, outputs, functions=()):
    def values(tensors):
        return [helper.make_tensor_value_info(name, *facts) for name, facts in tensors.items()]

    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mrcfa", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def tiny_encoder():
    return model(
        [helper.make_node("Cast", ["image"], ["base"], name="prepare", to=TensorProto.FLOAT16)],
        {"image": (TensorProto.UINT8, [1, 8, 8, 3])},
        {"base": (TensorProto.FLOAT16, [1, 8, 8, 3])},
    )


def tiny_decoder(selection):
    """STM alone: affinities in, the call of SelectTokens, indices out."""
    plugin = {"plugin_namespace": "mrcfa", "plugin_version": "1"}
    call = helper.make_node(
        "SelectTokens",
        ["affinity"],
        ["selected"],
        "stm",
        domain="mrcfa",
        **vars(selection),
        **plugin,
    )
    return model(
        [call],
        {"affinity": (TensorProto.FLOAT16, [3, 40, selection.tokens])},
        {"selected": (TensorProto.INT32, [3, selection.keep])},
        [function(selection, 18)],
    )


def write_tiny(path: Path, decoder: onnx.ModelProto | None = None, **changes: Any) -> Path:
    """A bundle whose decoder only selects tokens, unless it is given another."""
    config = preset("vspw", "b0", **{"size": (96, 160), **changes})
    graphs = {"encoder": tiny_encoder(), "decoder": decoder or tiny_decoder(selection_of(config))}

    def fill(folder: Path) -> Manifest:
        for part, graph in graphs.items():
            onnx.save(graph, folder / f"{part}.fp16.onnx")
        entries = {part: Graph(f"{part}.fp16.onnx", *ends) for part, ends in ENDS.items()}
        variant = Variant("fp16", Device.GPU, "plain", Limits(0, 0, 0, 0, 0), **entries)
        return Manifest(
            mrcfa="0",
            config=config,
            streams=1,
            frame=(8, 8),
            output=Output.MASK,
            variants={"fp16": variant},
            classes=tuple(f"class {index}" for index in range(config.classes)),
            palette=((0, 0, 0),) * config.classes,
            preprocessing={},
            weights=Weights("none", None, random=True),
            files={},
            tools={},
            engines=(),
        )

    write_bundle(path, fill)
    return path


def build(path, *sms, **options):
    return build_engines(
        path, choose_target(FlavourChoice.RTX, sms or [75]), BuildOptions(**options)
    )


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}
