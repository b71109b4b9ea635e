"""A bundle at a glance, as text for `mrcfa inspect` and as JSON; no graph or engine is loaded."""

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.layers import narrow_products, read_layers
from mrcfa.bundle.manifest import STATE, Engine, PlanCost, Quantization, TensorSpec, Variant
from mrcfa.errors import named
from mrcfa.machine.files import sha256
from mrcfa.model.config import Config

_PRODUCTS = {flavour.value: flavour.product for flavour in Flavour}


def summary(bundle: Bundle) -> str:
    """The bundle as text: model, tensors, state, cost, files, engines."""
    manifest, config = bundle.manifest, bundle.config
    blocks = [
        [
            f"{bundle.path}: {config.method.display_name} {config.backbone}, "
            f"preset {config.dataset}, {config.classes} classes",
            f"frame {_hw(manifest.frame)} {manifest.input}, network input {_hw(config.size)}, "
            f"{_past(config)}",
            *_streams(manifest.streams),
            f"classes: {named(manifest.classes, most=20)}",
            f"weights: {manifest.weights.origin}"
            + (" (untrained: masks are meaningless)" if manifest.weights.random else ""),
        ],
        *(_variant_lines(name, variant) for name, variant in manifest.variants.items()),
    ]
    blocks.append(
        [
            "files",
            *(
                f"  {name:24} {_bytes(entry.bytes):>10}  {entry.sha256[:12]}"
                for name, entry in manifest.files.items()
            ),
        ]
    )
    blocks.append(
        [
            "engines",
            *(line for engine in manifest.engines for line in _engine_lines(bundle, engine)),
        ]
        if manifest.engines
        else ["engines: none; build them with: mrcfa build " + str(bundle.path)]
    )
    return "\n\n".join("\n".join(lines) for lines in blocks)


def facts(bundle: Bundle) -> dict[str, Any]:
    """The entry about a bundle in the report of a measurement, as JSON."""
    manifest = bundle.manifest
    return {
        "name": bundle.path.name,
        "manifest_sha256": sha256(bundle.path / MANIFEST),
        "exported_by": manifest.mrcfa,
        "config": asdict(manifest.config),
        "frame": manifest.frame,
        "streams": manifest.streams,
        "output": manifest.output.value,
        "weights": asdict(manifest.weights),
        "variants": {name: variant.note for name, variant in manifest.variants.items()},
        "engines": [asdict(engine) for engine in manifest.engines],
    }


def _variant_lines(name: str, variant: Variant) -> list[str]:
    """A variant: how it is laid out, its tensors, its state, its cost."""
    lines = [
        f"variant {name}: {variant.precision} for {variant.device.value.upper()}s, "
        + ", ".join(filter(None, [variant.arrangement, variant.note]))
    ]
    if variant.quantization is not None:
        lines += [f"  {line}" for line in quantization_lines(variant.quantization)]
    for part, graph in variant.graphs.items():
        lines.append(f"  {part} ({graph.file}, {graph.parameters / 1e6:.1f} M parameters)")
        if graph.activation_bytes is not None:
            lines.append(f"    {_bytes(graph.activation_bytes)} activations, if nothing is fused")
        lines += [f"    in  {_tensor(spec)}" for spec in graph.inputs]
        lines += [f"    out {_tensor(spec)}" for spec in graph.outputs]
        if graph.wide:
            lines.append(f"    {len(graph.wide)} nodes stay FP32: {_kinds(graph.wide)}")
    state = {spec.name: _size(spec) for spec in variant.decoder.inputs if spec.name in STATE}
    size = sum(state.values()) // variant.streams
    lines.append(f"  state per stream: {_bytes(size)} ({' and '.join(state)})")
    return lines + _cost_lines(variant)


def quantization_lines(found: Quantization) -> list[str]:
    """Share of the model in 8 bits, its loss, and blocks left in FP16."""
    total = len(found.blocks) + len(found.fp16)
    lines = [
        f"{len(found.blocks)} of {total} blocks in 8 bits: {found.shares['encoder']:.0%} of the "
        f"encoder's multiply-adds, {found.shares['weights']:.0%} of those with weights",
        f"loses {found.loss:.2f} points of {found.measure} on {found.frames} frames of "
        f"{found.data} ({found.allowed_loss:g} were allowed), calibrated by {found.method}",
    ]
    if found.fp16:
        lines.append(f"left in FP16: {', '.join(found.fp16)}")
    return lines


def _streams(count: int) -> list[str]:
    if count == 1:
        return []
    return [f"{count} streams at once; what a frame costs is its share of a run for {count} frames"]


def _past(config: Config) -> str:
    """Schedule of the references, or that the model has no memory."""
    if not config.references:
        return "no memory: every frame is segmented by itself"
    offsets = ", ".join(map(str, config.references))
    return f"references {offsets} frames back, keeps {config.keep:g} of their tokens"


def _engine_lines(bundle: Bundle, engine: Engine) -> list[str]:
    """The engine, with its layers counted by kind."""
    needs = f", needs {engine.plugin}" if engine.plugin else ""
    product = _PRODUCTS.get(engine.flavour, engine.flavour)
    lines = [f"  {engine.name} ({product} {engine.tensorrt}{needs})"]
    if engine.layers:
        for part, layers in read_layers(
            bundle.read(engine.layers), bundle.path / engine.layers
        ).items():
            kinds = Counter(layer["type"] for layer in layers).most_common()
            listed = named((f"{count} {kind}" for kind, count in kinds), most=20)
            narrow = narrow_products(layers)
            counted = f"; {narrow} products in 8 bits" if narrow else ""
            lines.append(f"    {part} {len(layers)} layers: {listed}{counted}")
    lines += [f"    {part} {_plan_cost(cost)}" for part, cost in engine.costs.items()]
    lines += [f"    {part} form: {form}" for part, form in engine.forms.items()]
    return lines


def _plan_cost(cost: PlanCost) -> str:
    """`143 kernels write 296.6 MiB and read 412.0 MiB per frame; 39.5 MiB activations`."""
    memory = [
        f"{_bytes(count)} {what}"
        for what, count in (("activations", cost.activation_bytes), ("weights", cost.weights_bytes))
        if count is not None
    ]
    moved = f"write {_bytes(cost.bytes_written)} and read {_bytes(cost.bytes_read)} per frame"
    return f"{cost.kernels} kernels {moved}" + (f"; {', '.join(memory)}" if memory else "")


def _cost_lines(variant: Variant) -> list[str]:
    lines = [f"  {'cost per frame':32} multiply-adds  bytes moved"]
    total_work = total_bytes = 0
    for cost in variant.cost:
        total_work += cost.multiply_adds
        total_bytes += cost.bytes_moved
        lines.append(
            f"    {cost.graph + ' ' + cost.stage:30} {cost.multiply_adds / 1e9:8.2f} G"
            f" {_bytes(cost.bytes_moved):>14}"
        )
    lines.append(f"    {'total':30} {total_work / 1e9:8.2f} G {_bytes(total_bytes):>14}")
    return lines


def _tensor(spec: TensorSpec) -> str:
    return f"{spec.name:12} {spec.dtype:8} {list(spec.shape)}"


def _size(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def _kinds(nodes: tuple[str, ...]) -> str:
    """`30 LayerNormalization, 10 InstanceNormalization`: operator types with their number."""
    kinds = Counter(name.rpartition("/")[2].partition("_")[0] for name in nodes)
    return named((f"{count} {kind}" for kind, count in kinds.items()), most=20)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"


def _hw(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
