"""`mrcfa export`: a model's weights -> a bundle whose graphs are proven against it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import onnx
import torch
from onnx import TensorProto

import mrcfa
from export.check import Proof, check_graphs
from export.corners import with_corner_mask
from export.cost import graph_cost, parameter_count
from export.decoder import DecoderGraph
from export.encoder import EncoderGraph
from export.layout import Layout
from export.onnx_graph import HIGHEST_OPSET, LOGITS_LAST, LOWEST_OPSET, to_onnx
from mrcfa.bundle import WEIGHTS, Bundle, Cost, Graph, Manifest, TensorSpec, new_bundle, sha256
from mrcfa.checks import Check
from mrcfa.config import MEAN, STD, Config
from mrcfa.errors import MrcfaError, named
from mrcfa.flavours import TOPK_LIMIT
from mrcfa.labels import class_names, palette
from mrcfa.model import MRCFA
from mrcfa.weights import load_weights, save_weights

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16}
OUTPUTS = ("mask", "logits")
CPU_DECODER = "decoder.cpu.onnx"
LARGEST_TENSOR = 2**31 - 1
"""Elements that TensorRT allows in one tensor."""


@dataclass(frozen=True)
class Options:
    """What `mrcfa export` may be told beyond the model itself."""

    frame: tuple[int, int]
    output: str = "mask"
    precisions: Sequence[str] = ("fp32", "fp16")
    opset: int = 18
    inline_functions: bool = False


def export_bundle(
    config: Config,
    path: Path,
    weights: Path | None = None,
    seed: int = 0,
    options: Options | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Bundle:
    """Write the bundle at `path`, or nothing at all. `progress` hears what is being done."""
    options = options or Options(config.size)
    layout = Layout(config)
    check_options(layout, options)
    with new_bundle(path, force) as (folder, finish):
        model = MRCFA(config, seed=seed)
        if weights is not None:
            progress("loading weights")
            load_weights(model, weights)
        save_weights(model, folder / WEIGHTS)

        graphs: dict[str, dict[str, Graph]] = {}
        proofs: dict[str, Proof] = {}
        costs: dict[str, tuple[Cost, ...]] = {}
        for precision in options.precisions:
            models = _trace(model, layout, options, precision, progress)
            suffix = "onnx" if precision == "fp32" else f"{precision}.onnx"
            graphs[precision] = {
                part: _describe(graph, f"{part}.{suffix}") for part, graph in models.items()
            }
            for part, graph in models.items():
                onnx.save(graph, folder / f"{part}.{suffix}")
            encoder, decoder = (folder / graph.file for graph in graphs[precision].values())
            proofs[precision] = Proof(precision, encoder, decoder)
            if precision == "fp32" and options.output == "mask" and options.frame == config.size:
                onnx.save(with_corner_mask(models["decoder"]), folder / CPU_DECODER)
                graphs["fp32"]["decoder"] = replace(graphs["fp32"]["decoder"], cpu=CPU_DECODER)
                proofs["fp32 on CPUs"] = Proof(precision, encoder, folder / CPU_DECODER)
            costs[precision] = tuple(
                cost for part, graph in models.items() for cost in graph_cost(graph, part)
            )
        parities = check_graphs(model, options.frame, options.output, proofs, progress)
        _refuse_misses({name: parity.checks for name, parity in parities.items()})
        return finish(
            Manifest(
                mrcfa=mrcfa.__version__,
                config=config,
                frame=options.frame,
                output=options.output,
                graphs=graphs,
                classes=class_names(config.dataset, config.classes),
                palette=palette(config.dataset, config.classes),
                preprocessing={
                    "colour": "RGB",
                    "mean": MEAN,
                    "std": STD,
                    "resize": "bilinear, half-pixel centres, no antialias, in the graph",
                },
                weights=_origin(weights, seed),
                files={},
                tools={name: version(name) for name in ("torch", "onnx", "onnxsim", "onnxscript")},
                cost=costs.get("fp16") or costs["fp32"],
                parity={
                    name: tuple(check.to_json() for check in parity.checks)
                    for name, parity in parities.items()
                },
            )
        )


def check_options(layout: Layout, options: Options) -> None:
    """Refuse what cannot work before any work is done."""
    if options.output not in OUTPUTS:
        raise MrcfaError(f"unknown output {options.output!r}; choose one of {named(OUTPUTS)}")
    unknown = [name for name in options.precisions if name not in PRECISIONS]
    if unknown or not options.precisions:
        raise MrcfaError(
            f"unknown precision {named(unknown) or 'none'}; choose from {named(PRECISIONS)}"
        )
    if not LOWEST_OPSET <= options.opset <= HIGHEST_OPSET:
        raise MrcfaError(
            f"opset {options.opset} cannot be exported; use {LOWEST_OPSET}, the first with "
            f"LayerNormalization, to {HIGHEST_OPSET}"
        )
    if min(options.frame) < 1:
        raise MrcfaError(f"a frame of {options.frame[0]}x{options.frame[1]} has no pixels")
    if options.inline_functions and layout.selection.keep > TOPK_LIMIT:
        raise MrcfaError(
            f"this size keeps {layout.selection.keep} tokens and TensorRT's TopK takes "
            f"{TOPK_LIMIT}: export without --inline-functions and build with the plugin, "
            "or lower --keep or --size"
        )
    for what, elements in _large_tensors(layout, options).items():
        if elements > LARGEST_TENSOR:
            raise MrcfaError(
                f"{what} would have {elements:,} elements and a tensor holds at most "
                f"{LARGEST_TENSOR:,}: choose a smaller --size or --frame"
            )


def _large_tensors(layout: Layout, options: Options) -> dict[str, int]:
    config, selection = layout.config, layout.selection
    attention = layout.tokens(4) * layout.tokens(32)
    maps = len(config.references) * selection.keep * config.backbone.affinity_channels
    found = {
        "the encoder's first attention": attention,
        "the finest affinity": maps * layout.tokens(layout.strides[-1]),
    }
    if options.output == "mask":
        pixels = max(options.frame[0] * options.frame[1], config.size[0] * config.size[1])
        found["the full-size logits"] = config.classes * pixels
    return found


def _trace(
    model: MRCFA,
    layout: Layout,
    options: Options,
    precision: str,
    progress: Callable[[str], None],
) -> dict[str, onnx.ModelProto]:
    dtype = PRECISIONS[precision]
    progress(f"exporting the {precision} encoder")
    encoder = EncoderGraph(model, layout, dtype)
    image = torch.zeros(1, *options.frame, 3, dtype=torch.uint8)
    graphs = {"encoder": to_onnx(encoder, {"image": image}, layout.encoder_outputs, options.opset)}
    progress(f"exporting the {precision} decoder")
    decoder = DecoderGraph(model, layout, options.frame, options.output, dtype)
    answers, hidden = ["logits"], []
    if options.output == "mask":
        hidden = [LOGITS_LAST if decoder.classes_last else "logits"]
        answers = [*hidden, "mask"]
    graphs["decoder"] = to_onnx(
        decoder,
        layout.decoder_inputs(dtype),
        ["memory_out", "frame_out", *answers],
        options.opset,
        hidden=hidden,
        selection=layout.selection,
        inline=options.inline_functions,
    )
    return graphs


def _describe(model: onnx.ModelProto, file: str) -> Graph:
    return Graph(
        file=file,
        inputs=tuple(_spec(value) for value in model.graph.input),
        outputs=tuple(_spec(value) for value in model.graph.output),
        parameters=parameter_count(model),
        wide=_wide_nodes(model),
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    return TensorSpec(value.name, dtype, tuple(dim.dim_value for dim in kind.shape.dim))


def _wide_nodes(model: onnx.ModelProto) -> tuple[str, ...]:
    """The FP32 islands of an FP16 graph: nodes that compute, rather than cast, to FP32."""
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in (*model.graph.value_info, *model.graph.output)
    }
    if TensorProto.FLOAT16 not in kinds.values():
        return ()
    return tuple(
        node.name
        for node in model.graph.node
        if node.op_type != "Cast" and kinds.get(node.output[0]) == TensorProto.FLOAT
    )


def _origin(weights: Path | None, seed: int) -> dict[str, object]:
    if weights is None:
        return {"origin": f"random, seed {seed}", "sha256": None, "random": True}
    return {"origin": weights.name, "sha256": sha256(weights), "random": False}


def _refuse_misses(checks: dict[str, list[Check]]) -> None:
    missed = [
        f"{name} {check}" for name, found in checks.items() for check in found if not check.passed
    ]
    if missed:
        raise MrcfaError(f"the exported graphs are not the model: {named(missed)}")
