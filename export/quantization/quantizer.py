"""`mrcfa quantize`: adds an 8-bit variant to a bundle, calibrated and judged on given footage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

import mrcfa
from mrcfa.bundle import MANIFEST, WEIGHTS, Bundle, write_bundle
from mrcfa.bundle.manifest import Limits, Manifest, Output, Quantization, Variant
from mrcfa.console.printable import printable
from mrcfa.errors import AlreadyExists, InvalidValue
from mrcfa.export.exporter import ExportOptions, Traced, trace_variant
from mrcfa.export.onnx_graph import logits_name
from mrcfa.export.ort_cpu.scan import with_output
from mrcfa.export.proof import check_graphs
from mrcfa.export.quantization.blocks import Block, blocks_of, rounded_tensors
from mrcfa.export.quantization.calibration import Histogram, collect, ranges
from mrcfa.export.quantization.choices import Method
from mrcfa.export.quantization.footage import BEYOND_MEMORY, Footage, footage, images_of
from mrcfa.export.quantization.formats import Format, format_named
from mrcfa.export.quantization.graphs import GraphSession, Pair
from mrcfa.export.quantization.insertion import quantized
from mrcfa.export.quantization.limits import limits_of, shares_of
from mrcfa.export.quantization.loss import Judge, Score
from mrcfa.export.quantization.sensitivity import Ranges, Sensitivity, most_blocks
from mrcfa.export.quantization.work import Work
from mrcfa.export.variants import VARIANTS
from mrcfa.machine.files import check_writable, fingerprint
from mrcfa.model.methods import build_model
from mrcfa.model.schedule import references_at
from mrcfa.model.segformer import SegFormer
from mrcfa.model.weights import load_weights

MEASURE = 4
"""The version of intermediate results, which goes up when they change their meaning."""
OPSET = 19
"""The first whose Q/DQ nodes take FP16 and FP8; TensorRT 10.3 reads it."""
Show = Callable[[str, float], None]
"""A function that shows a step and the share of it that is done."""


@dataclass(frozen=True)
class QuantizeOptions:
    data: str
    split: str | None = None
    """A dataset's split; None takes `train`, or `val` where that is missing."""
    frames: int = 64
    precision: str = "int8"
    method: Method | None = None
    """None takes the precision's own."""
    keep_loss: float = 0.5
    force: bool = False
    threads: int = 0


def quantize(
    path: Path, options: QuantizeOptions, show: Show = lambda name, share: None
) -> tuple[Bundle, Quantization]:
    """Add the variant, or leave the bundle as it was; after an interruption, go on."""
    bundle = Bundle.open(path)
    form = format_named(options.precision)
    if form.name in bundle.manifest.variants and not options.force:
        raise AlreadyExists(f"{path} has the variant {form.name} already; --force replaces it")
    if options.keep_loss <= 0:
        raise InvalidValue(f"--keep-loss is {options.keep_loss:g}; allow a loss above 0 points")
    check_writable(bundle.path / MANIFEST)
    shown = footage(options.data, options.split, options.frames, bundle)
    with Work.on(_identity(bundle, options)) as work:
        quantizer = _Quantizer(bundle, form, options, shown, work, show)
        variant, graphs, found = quantizer.variant()
        return _added(bundle, form.name, variant, graphs), found


class _Quantizer:
    def __init__(
        self,
        bundle: Bundle,
        form: Format,
        options: QuantizeOptions,
        shown: Footage,
        work: Work,
        show: Show,
    ) -> None:
        self._bundle, self._form, self._options = bundle, form, options
        self._footage, self._work, self._show = shown, work, show
        self._method = options.method or Method(form.calibration)
        show("graphs", 0.0)
        self._model = build_model(bundle.config)
        load_weights(self._model, bundle.file(WEIGHTS))
        self._traced = self._trace(self._model)
        self._blocks = [
            block
            for part, graph in self._traced.graphs.items()
            for block in blocks_of(graph, part, form)
        ]
        show("graphs", 1.0)

    def variant(self) -> tuple[Variant, Mapping[str, onnx.ModelProto], Quantization]:
        limits = _by_part(ranges(self._histograms(), self._method))
        sensitivity = self._sensitivity(limits)
        order = sorted(self._blocks, key=lambda block: sensitivity[block.name])
        scores = self._scores(order, limits)
        count, curve = most_blocks(
            len(order), lambda count: scores(count).loss, self._options.keep_loss
        )
        graphs = self._graphs(order[:count], limits)
        found = Quantization(
            method=self._method.value,
            data=printable(self._footage.name),
            frames=self._footage.frames,
            measure="mIoU" if self._footage.labelled else "agreement",
            loss=scores(count).loss,
            allowed_loss=self._options.keep_loss,
            blocks=tuple(block.name for block in order[:count]),
            fp16=tuple(block.name for block in order[count:]),
            sensitivity=sensitivity,
            curve=tuple(curve.items()),
            shares=shares_of(self._traced.graphs, order[:count]),
        )
        return self._described(graphs, found, scores(count)), graphs, found

    def _trace(self, model: SegFormer) -> Traced:
        manifest = self._bundle.manifest
        old = self._bundle.file(next(iter(manifest.variants.values())).decoder.file)
        options = ExportOptions(
            frame=manifest.frame,
            input=manifest.input,
            output=manifest.output,
            streams=manifest.streams,
            opset=OPSET,
            inline_functions=not onnx.load(old, load_external_data=False).functions,
        )
        return trace_variant(VARIANTS[self._form.name], model, options, lambda text: None)

    def _histograms(self) -> dict[str, Histogram]:
        """Histograms of every tensor that may be rounded, over all streams."""
        streams = self._footage.streams
        histograms, done = self._work.histograms()
        tensors = {
            part: rounded_tensors(graph, [block for block in self._blocks if block.part == part])
            for part, graph in self._traced.graphs.items()
        }
        pair = Pair(
            *(
                GraphSession(graph, tensors[part], self._options.threads)
                for part, graph in self._traced.graphs.items()
            )
        )
        advance = self._counter("calibration", self._footage.frames, sum(map(len, streams[:done])))
        for number, stream in enumerate(streams[done:], start=done + 1):
            collect(pair, tensors, histograms, images_of(stream), advance)
            self._work.keep_histograms(histograms, number)
        return histograms

    def _sensitivity(self, limits: Ranges) -> dict[str, float]:
        known = self._work.facts("sensitivity")
        advance = self._counter("sensitivity", len(self._blocks), len(known))
        if len(known) == len(self._blocks):
            return known
        graphs = dict(self._traced.graphs)
        if self._bundle.manifest.output is Output.MASK:
            graphs["decoder"] = with_output(graphs["decoder"], logits_name(False))
        config = self._bundle.config
        images = images_of(self._footage.streams[0])[: config.depth + BEYOND_MEMORY]
        last = len(images) - 1
        seen = {last, *references_at(last, config.references)}
        measured = Sensitivity(graphs, images, seen, limits, self._form, self._options.threads)
        for block in self._blocks:
            if block.name not in known:
                known[block.name] = measured.of(block)
                self._work.keep_facts("sensitivity", known)
                advance()
        return known

    def _scores(self, order: list[Block], limits: Ranges) -> Callable[[int], Score]:
        """A function that scores the first `count` blocks in 8 bits, each count once."""
        frames = self._footage.frames
        threads = self._options.threads
        advance = self._counter("reference", frames)
        judge = Judge(self._bundle, self._footage, threads, advance)
        known = self._work.facts("scores")

        def score(count: int) -> Score:
            if str(count) not in known:
                path = self._candidate(self._graphs(order[:count], limits))
                name = f"{count} of {len(order)} blocks in 8 bits"
                advance = self._counter(name, frames)
                known[str(count)] = vars(judge.score(path, self._form.name, advance))
                self._work.keep_facts("scores", known)
            return Score(**known[str(count)])

        return score

    def _graphs(self, blocks: list[Block], limits: Ranges) -> dict[str, onnx.ModelProto]:
        return {
            part: quantized(
                graph, [block for block in blocks if block.part == part], limits[part], self._form
            )
            for part, graph in self._traced.graphs.items()
        }

    def _candidate(self, graphs: Mapping[str, onnx.ModelProto]) -> Path:
        """A bundle of these graphs alone, which is scored like any bundle."""
        traced = replace(self._traced, graphs=graphs, whole=graphs)

        def fill(folder: Path) -> Manifest:
            traced.save(folder)
            variants = {self._form.name: traced.described(())}
            return replace(self._bundle.manifest, variants=variants, engines=())

        return write_bundle(self._work.folder / "candidate", fill, force=True).path

    def _described(
        self, graphs: Mapping[str, onnx.ModelProto], found: Quantization, score: Score
    ) -> Variant:
        """The variant, with limits that were measured on the built-in clip and the footage."""
        folder = self._candidate(graphs)
        traced, manifest = replace(self._traced, graphs=graphs, whole=graphs), self._bundle.manifest
        unlimited = Limits(1.0, 1.0, 0.0, 0.0, 0.0)
        clip = check_graphs(
            self._model,
            manifest.frame,
            manifest.output,
            manifest.streams,
            {self._form.name: traced.proof(folder)._replace(limits=unlimited)},
            lambda text: self._show("built-in clip", 0.5),
            manifest.input,
        )
        self._show("built-in clip", 1.0)
        parity = clip.parities[self._form.name]
        parity.limits = limits_of(parity, score)
        plain = self._traced.described(())
        described = traced.described(parity.checks)
        return replace(
            described,
            limits=parity.limits,
            encoder=replace(described.encoder, parameters=plain.encoder.parameters),
            decoder=replace(described.decoder, parameters=plain.decoder.parameters),
            quantization=found,
        )

    def _counter(self, name: str, total: int, done: int = 0) -> Callable[[], None]:
        count = done

        def advance() -> None:
            nonlocal count
            count += 1
            self._show(name, count / total)

        self._show(name, done / total)
        return advance


def _by_part(found: Mapping[str, float]) -> dict[str, dict[str, float]]:
    made: dict[str, dict[str, float]] = {"encoder": {}, "decoder": {}}
    for key, largest in found.items():
        part, _, name = key.partition(":")
        made[part][name] = largest
    return made


def _identity(bundle: Bundle, options: QuantizeOptions) -> str:
    """A fingerprint of everything that intermediate results depend on."""
    manifest = bundle.manifest
    return fingerprint(
        (mrcfa.__version__, MEASURE),
        manifest.files[WEIGHTS].sha256,
        (manifest.config, manifest.frame, manifest.input, manifest.output, manifest.streams),
        (Path(options.data).resolve(), options.split, options.frames),
        (options.precision, options.method),
    )


def _added(
    bundle: Bundle, name: str, variant: Variant, graphs: Mapping[str, onnx.ModelProto]
) -> Bundle:
    """The bundle with this variant; files of a replaced one stay until the manifest is written."""
    contents = {part: graph.SerializeToString() for part, graph in graphs.items()}
    files = {part: graph.file for part, graph in variant.graphs.items()}
    if set(files.values()) & bundle.manifest.files.keys():
        files = {
            part: f"{part}.{name}.{fingerprint(content)[:8]}.onnx"
            for part, content in contents.items()
        }
    variant = replace(
        variant,
        encoder=replace(variant.encoder, file=files["encoder"]),
        decoder=replace(variant.decoder, file=files["decoder"]),
    )
    return bundle.with_variant(name, variant, {files[part]: contents[part] for part in files})
