"""`mrcfa export`: a model's weights -> a bundle whose graphs are proven against it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto

import mrcfa
from mrcfa.bounds import SIDE, STREAMS
from mrcfa.bundle import EXPECTED, WEIGHTS, Bundle, manifest, write_bundle
from mrcfa.bundle.checks import Check
from mrcfa.bundle.flavours import TOPK_LIMIT
from mrcfa.bundle.manifest import STATE, Graph, Manifest, Output, TensorSpec, Weights
from mrcfa.bundle.parity import SAME_CLASS, Parity
from mrcfa.console.printable import printable
from mrcfa.data.datasets import dataset_named
from mrcfa.data.labels import Labels, numbered
from mrcfa.errors import InvalidValue, Mismatch, NotEqual, Unsupported, named
from mrcfa.export.cost import activation_bytes, graph_cost, parameter_count
from mrcfa.export.onnx_graph import HIGHEST_OPSET, LOWEST_OPSET, logits_name, to_onnx
from mrcfa.export.ort_cpu.corners import with_corner_mask
from mrcfa.export.ort_cpu.scan import scanned
from mrcfa.export.proof import Proof, check_graphs
from mrcfa.export.tensors import decoder_inputs, encoder_outputs, entry_columns, selection
from mrcfa.export.variants import DEFAULT, VARIANTS, Variant
from mrcfa.machine.files import sha256
from mrcfa.model.config import MEAN, MLP_RATIO, STD, Config, Method
from mrcfa.model.input_format import RGB, InputFormat
from mrcfa.model.methods import build_model
from mrcfa.model.segformer import SegFormer
from mrcfa.model.weights import load_weights, save_weights

LARGEST_TENSOR = 2**31 - 1
"""Elements that TensorRT allows in one tensor."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ExportOptions:
    """The options of `mrcfa export` apart from the model."""

    frame: tuple[int, int]
    input: InputFormat = RGB
    output: Output = Output.MASK
    streams: int = 1
    variants: Sequence[Variant] = tuple(VARIANTS[name] for name in DEFAULT)
    opset: int = 18
    inline_functions: bool = False
    activation_memory: int | None = None
    """Bytes that a decoder may hold beside its weights; None: the usual budget."""
    labels: Labels | None = None
    """None: the dataset's if the model has its number of classes, numbers otherwise."""


def export_bundle(
    config: Config,
    path: Path,
    weights: Path | None = None,
    seed: int = 0,
    options: ExportOptions | None = None,
    force: bool = False,
    progress: Progress = lambda text: None,
    warn: Progress = lambda sentence: None,
) -> Bundle:
    """Write the bundle at `path`, or nothing at all. `progress` gets the name of each step.

    A variant that misses its limits is left out, and `warn` gets a sentence about it. If FP32
    misses them, the export fails.
    """
    options = options or ExportOptions(config.size)
    check_options(config, options)

    def fill(folder: Path) -> Manifest:
        model = build_model(config, seed=seed)
        if weights is not None:
            progress("loading weights")
            load_weights(model, weights)
        save_weights(model, folder / WEIGHTS)
        traced = {
            variant.name: trace_variant(variant, model, options, progress)
            for variant in options.variants
        }
        for variant in traced.values():
            variant.save(folder)
        proofs = {name: variant.proof(folder) for name, variant in traced.items()}
        proven = check_graphs(
            model, options.frame, options.output, options.streams, proofs, progress, options.input
        )
        checks = {name: parity.checks for name, parity in proven.parities.items()}
        for sentence in _misses(options.variants, proven.parities):
            warn(sentence)
        for name in [name for name, found in checks.items() if _missed(found)]:
            traced.pop(name).remove(folder)
        np.savez_compressed(folder / EXPECTED, masks=proven.masks, frames=proven.frames)
        labels = options.labels or _labels_of(config)
        return Manifest(
            mrcfa=mrcfa.__version__,
            config=config,
            streams=options.streams,
            frame=options.frame,
            output=options.output,
            variants={name: found.described(checks[name]) for name, found in traced.items()},
            classes=labels.names,
            palette=labels.colours,
            preprocessing={
                "colour": "RGB",
                "mean": MEAN,
                "std": STD,
                "resize": "bilinear, half-pixel centres, no antialias, in the graph",
            },
            input=options.input,
            weights=_origin(weights, seed),
            files={},
            tools={name: version(name) for name in ("torch", "onnx", "onnxsim", "onnxscript")},
            engines=(),
        )

    return write_bundle(path, fill, force)


@dataclass(frozen=True)
class Traced:
    """The graphs of a variant, in memory."""

    variant: Variant
    note: str
    graphs: Mapping[str, onnx.ModelProto]
    """Encoder and decoder as one run computes them: for one stream, or for a batch of all."""
    whole: Mapping[str, onnx.ModelProto]
    """Encoder and decoder for all streams, as they are written."""

    def save(self, folder: Path) -> None:
        for part, graph in self.whole.items():
            onnx.save(graph, folder / self.variant.file(part))

    def proof(self, folder: Path) -> Proof:
        variant = self.variant
        encoder, decoder = (folder / variant.file(part) for part in self.graphs)
        last = variant.arrangement.classes_last
        return Proof(encoder, decoder, last, variant.limits, variant.resolution)

    def remove(self, folder: Path) -> None:
        for part in self.whole:
            (folder / self.variant.file(part)).unlink()

    def described(self, checks: Sequence[Check]) -> manifest.Variant:
        variant = self.variant
        return manifest.Variant(
            precision=variant.precision,
            device=variant.device,
            arrangement=variant.arrangement.name,
            limits=variant.limits,
            encoder=self._described("encoder"),
            decoder=self._described("decoder"),
            note=self.note,
            cost=tuple(
                cost for part, graph in self.graphs.items() for cost in graph_cost(graph, part)
            ),
            parity=tuple(check.to_json() for check in checks),
        )

    def _described(self, part: str) -> Graph:
        traced, whole = self.graphs[part], self.whole[part]
        return Graph(
            file=self.variant.file(part),
            inputs=tuple(_spec(value) for value in whole.graph.input),
            outputs=tuple(_spec(value) for value in whole.graph.output),
            parameters=parameter_count(traced),
            wide=_wide_nodes(traced),
            activation_bytes=activation_bytes(traced),
        )


def trace_variant(
    variant: Variant, model: SegFormer, options: ExportOptions, progress: Progress
) -> Traced:
    config, is_mask = model.config, options.output is Output.MASK
    arrangement = variant.arrangement
    runs, batch = variant.runs(options.streams)
    grouping = variant.grouping(config, options.streams, options.activation_memory)
    progress(f"exporting the {variant.name} encoder")
    image = torch.zeros(batch, *options.input.shape(options.frame), dtype=torch.uint8)
    encoder = to_onnx(
        variant.rounded(arrangement.encoder(model, options.frame, options.input)),
        {"image": image},
        encoder_outputs(config),
        options.opset,
    )
    progress(f"exporting the {variant.name} decoder")
    inputs = decoder_inputs(config, variant.dtype, batch)
    hidden = [logits_name(arrangement.classes_last)] if is_mask else []
    results = [*hidden, "mask"] if is_mask else ["logits"]
    decoder = to_onnx(
        variant.rounded(arrangement.decoder(model, options.frame, options.output, grouping)),
        inputs,
        [*(f"{name}_out" for name in STATE if name in inputs), *results],
        options.opset,
        hidden=hidden,
        selection=selection(config) if config.references else None,
        inline=options.inline_functions,
    )
    if is_mask and options.frame == config.size and arrangement.corner_mask:
        decoder = with_corner_mask(decoder)
    graphs = {"encoder": encoder, "decoder": decoder}
    whole = {part: scanned(graph, runs) for part, graph in graphs.items()} if runs > 1 else graphs
    note = "" if grouping is None else grouping.note(config.kept)
    return Traced(variant, note, graphs, whole)


def check_options(config: Config, options: ExportOptions) -> None:
    """Refuse options that cannot work before any work is done."""
    if options.labels is not None and len(options.labels.names) != config.classes:
        raise Mismatch(
            f"the labels name {len(options.labels.names)} classes and the model has "
            f"{config.classes}; give each class its name"
        )
    if not LOWEST_OPSET <= options.opset <= HIGHEST_OPSET:
        raise InvalidValue(
            f"opset {options.opset} cannot be exported; use {LOWEST_OPSET}, the first with "
            f"LayerNormalization, to {HIGHEST_OPSET}"
        )
    if min(options.frame) < 1:
        raise InvalidValue(f"a frame of {options.frame[0]}x{options.frame[1]} has no pixels")
    options.input.check(options.frame)
    if options.inline_functions and config.kept > TOPK_LIMIT:
        raise Unsupported(
            f"this size keeps {config.kept} tokens and TensorRT's TopK takes "
            f"{TOPK_LIMIT}: export without --inline-functions and build with the plugin, "
            "or lower --keep or --size"
        )
    if max(options.frame) > SIDE:
        raise InvalidValue(
            f"a frame of {options.frame[0]}x{options.frame[1]} is too long; {SIDE} pixels a side "
            "are the most"
        )
    if not 1 <= options.streams <= STREAMS:
        raise InvalidValue(
            f"{options.streams} streams cannot be exported; use 1 to {STREAMS}, and more "
            "bundles or streams of one for more cameras"
        )
    if options.activation_memory is not None and config.method is not Method.MRCFA:
        raise Unsupported(
            f"--activation-memory is for MRCFA's decoder; that of {config.method.display_name} "
            "does not work in groups"
        )
    for variant in options.variants:
        for tensor, elements in _large_tensors(config, options, variant).items():
            if elements > LARGEST_TENSOR:
                fewer = ", or fewer --streams" if options.streams > 1 else ""
                raise InvalidValue(
                    f"{tensor} would have {elements:,} elements and a tensor holds at most "
                    f"{LARGEST_TENSOR:,}: choose a smaller --size or --frame{fewer}"
                )


def _large_tensors(config: Config, options: ExportOptions, variant: Variant) -> dict[str, int]:
    """Numbers of elements, for all streams that a graph computes at once."""
    _, batch = variant.runs(options.streams)
    grouping = variant.grouping(config, options.streams, options.activation_memory)
    maps = len(config.references) * config.kept if grouping is None else grouping.maps(config)
    finest = config.tokens_at(config.output_stride) * config.affinity_channels
    counts = {
        "the image": 3 * options.frame[0] * options.frame[1],
        "the encoder's finest layer": config.tokens_at(4) * MLP_RATIO * config.width(4),
        "the memory": config.depth * config.tokens * sum(entry_columns(config)),
        "the coarsest affinity": len(config.references) * config.tokens_at(32) ** 2,
        "the finest affinity": maps * finest,
    }
    return {tensor: batch * count for tensor, count in counts.items()}


def _labels_of(config: Config) -> Labels:
    known = dataset_named(config.dataset).labels
    return known if len(known.names) == config.classes else numbered(config.classes)


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


def _origin(weights: Path | None, seed: int) -> Weights:
    if weights is None:
        return Weights(f"random, seed {seed}", None, random=True)
    return Weights(printable(weights.name), sha256(weights), random=False)


def _missed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if not check.passed]


def _misses(variants: Sequence[Variant], parities: Mapping[str, Parity]) -> list[str]:
    """A sentence for each variant that misses its limits; an error if FP32 does, or all do."""
    missed = [variant for variant in variants if _missed(parities[variant.name].checks)]
    passed = [variant.name for variant in variants if variant not in missed]
    sentences = [_miss(variant.name, parities[variant.name]) for variant in missed]
    if missed and (not passed or any(variant.precision == "fp32" for variant in missed)):
        raise NotEqual(f"the exported graphs are not the model: {named(sentences)}")
    flag = f"--variants {','.join(passed)}"
    return [f"{sentence}; the bundle is without it, as with {flag}" for sentence in sentences]


def _miss(name: str, parity: Parity) -> str:
    """Pixels first, which say what it means; errors of logits say why it was left out."""
    different, allowed = 1 - parity.same_pixels, 1 - parity.limits.agreement
    facts = [
        f"{name} differs from the model in {different:.2%} of the pixels; allowed are {allowed:.2%}"
    ]
    facts += [
        f"{check.name} {check.value:.3g}; allowed are {check.threshold:.3g}"
        for check in _missed(parity.checks)
        if check.name != SAME_CLASS
    ]
    return ", ".join(facts)
