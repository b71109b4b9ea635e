"""`mrcfa build`: a bundle's ONNX graphs -> TensorRT engines, in the same bundle.

One builder serves both flavours: the ONNX file holds the precision, so the network is strongly
typed. `Target` and a few lines here know what differs.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.flavours import (
    PLUGIN_NAME,
    TOPK_LIMIT,
    WARNING,
    Flavour,
    captured_log,
    check_parser_takes_plugins,
    first_error,
    load_plugin,
    logger,
)
from mrcfa.bundle.graph_file import check_graph
from mrcfa.bundle.layers import BuildLog, read_log
from mrcfa.bundle.manifest import Device, Engine, FormChoice, Graph
from mrcfa.bundle.precisions import PREFERRED, precision_named
from mrcfa.console.notices import warn
from mrcfa.engines.choices import PluginUse
from mrcfa.engines.forms import forms_of
from mrcfa.engines.progress import Progress, interruptible, monitor
from mrcfa.engines.selection import choose_form
from mrcfa.engines.target import Target
from mrcfa.errors import InvalidValue, Mismatch, MrcfaError, RuntimeFailed, Unsupported, named
from mrcfa.machine.files import check_writable, write_whole
from mrcfa.model.config import Config

HIGHEST_LEVEL = 5


@dataclass(frozen=True)
class BuildOptions:
    """Options of `mrcfa build` beyond the target."""

    precision: str = PREFERRED[Device.GPU]
    plugin: PluginUse = PluginUse.AUTO
    plugin_library: Path | None = None
    timing_cache: Path | None = None
    workspace_mb: int | None = None
    optimization_level: int | None = None
    version_compatible: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Plan:
    """One compiled form of a graph."""

    content: bytes
    log: BuildLog
    plugin: bool
    seconds: float
    """Time of the build."""


@dataclass(frozen=True)
class Built:
    bundle: Bundle
    engine: Engine
    plans: Mapping[str, Plan]
    """The plan of each graph, compiled from the chosen form."""


def build_engines(
    path: str | Path,
    target: Target,
    options: BuildOptions,
    progress: Progress = lambda what, share: None,
) -> Built:
    """Compile both graphs and add them to the bundle, or leave it as it was."""
    bundle = Bundle.open(path)
    _check_options(target, options)
    name = bundle.variant_name(Device.GPU, options.precision)
    variant = bundle.manifest.variants[name]
    plugin = _takes_plugin(bundle.config, options.plugin)
    check_writable(bundle.path / MANIFEST)
    contents = {part: bundle.read(graph.file) for part, graph in variant.graphs.items()}
    for part, graph in variant.graphs.items():
        check_graph(contents[part], bundle.path / graph.file)
    compiler = _Compiler(target, options)
    if plugin:
        load_plugin(target.trt, options.plugin_library)
        check_parser_takes_plugins(target.trt)
    chosen = {
        part: compiler.plan(part, graph, contents[part], plugin and part == "decoder", progress)
        for part, graph in variant.graphs.items()
    }
    plans = {part: plan for part, (plan, _) in chosen.items()}
    forms = {part: form for part, (_, form) in chosen.items()}
    engine, files = _packed(plans, forms, target, options, name)
    built = Built(bundle.with_engine(engine, files), engine, plans)
    compiler.save_timing_cache()
    return built


def _check_options(target: Target, options: BuildOptions) -> None:
    """Refuse what cannot work before minutes are spent on it."""
    level = options.optimization_level
    if level is not None and not 0 <= level <= HIGHEST_LEVEL:
        raise InvalidValue(f"optimization level {level} is not between 0 and {HIGHEST_LEVEL}")
    if options.workspace_mb is not None and options.workspace_mb < 1:
        raise InvalidValue(f"a workspace of {options.workspace_mb} MB is none; give at least 1")
    if target.flavour is not Flavour.RTX:
        return
    first_sm = precision_named(options.precision).first_rtx_sm
    lacking = [sm for sm in target.sms if sm < first_sm]
    if lacking:
        others = " ".join(f"--sm {sm}" for sm in target.sms if sm not in lacking) or "another --sm"
        raise Unsupported(
            f"TensorRT-RTX has no {options.precision.upper()} matrix product for "
            f"{named(f'sm_{sm}' for sm in lacking)}: build with --precision "
            f"{PREFERRED[Device.GPU]}, or for {others} alone"
        )
    for option, given in (
        ("--timing-cache", options.timing_cache),
        ("--version-compatible", options.version_compatible),
    ):
        if given:
            raise Unsupported(
                f"TensorRT-RTX does not know {option}: it chooses kernels when the engine is "
                "loaded, by its own version; leave the option out"
            )


def _takes_plugin(config: Config, use: PluginUse) -> bool:
    if use is PluginUse.ALWAYS and not config.references:
        raise Unsupported(
            f"{config.method.display_name} has no memory to select tokens from, which is all that "
            "the plugin does; build without --plugin always"
        )
    if use is PluginUse.NEVER and config.kept > TOPK_LIMIT:
        raise Unsupported(
            f"this model keeps {config.kept} tokens of a frame and TensorRT's TopK takes "
            f"{TOPK_LIMIT}: build with the plugin (--plugin auto), or export with a lower --keep "
            "or --size"
        )
    return use is PluginUse.ALWAYS or config.kept > TOPK_LIMIT


class _Compiler:
    """ONNX -> plan, with one TensorRT and one configuration for both graphs."""

    def __init__(self, target: Target, options: BuildOptions) -> None:
        self._target, self._options, self._trt = target, options, target.trt
        with captured_log(self._trt, options.verbose) as log:
            try:
                self._builder = self._trt.Builder(logger(self._trt))
            except (TypeError, RuntimeError):
                raise RuntimeFailed(f"{target.name} does not start: {first_error(log)}") from None
            self._config = self._configuration()

    def plan(
        self, part: str, graph: Graph, content: bytes, plugin: bool, progress: Progress
    ) -> tuple[Plan, FormChoice]:
        """The best plan of all forms in which this target can take the graph."""
        forms = forms_of(content, self._target, plugin)
        plans: dict[str, Plan] = {}
        errors = []
        for number, (name, form) in enumerate(forms.items()):
            shown = partial(_shown, progress, part, number, len(forms))
            try:
                plans[name] = self._built(graph, form, plugin, shown)
            except MrcfaError as error:
                errors.append(error)
                continue
            if unread := plans[name].log.unread:
                warn(
                    f"the cost of {graph.file} ({name}) is not known, because this mrcfa cannot "
                    f"read some of the log of {self._target.name}: {named(unread, most=3)}"
                )
        if not plans:
            raise errors[0]
        choice = choose_form(
            {name: plan.content for name, plan in plans.items()},
            {name: plan.log.cost for name, plan in plans.items()},
            self._target,
            graph,
            self._options.version_compatible,
        )
        progress(part, 1.0)
        return plans[choice.form], choice

    def _built(
        self, graph: Graph, content: bytes, plugin: bool, report: Callable[[float], None]
    ) -> Plan:
        name, streams = graph.file, graph.inputs[0].shape[0]
        began = time.perf_counter()
        with captured_log(self._trt, self._options.verbose) as log:
            network, parser = self._parsed(name, content, plugin)
            with interruptible() as stopped:
                self._config.progress_monitor = monitor(self._trt, report, stopped)
                plan = self._builder.build_serialized_network(network, self._config)
            del parser  # it owns the network's weights, so it had to stay until here
        if plan is None:
            raise RuntimeFailed(f"{self._target.name} cannot build {name}: {first_error(log)}")
        return Plan(
            content=bytes(plan),
            log=read_log(log, streams),
            plugin=_has_plugin(self._trt, network),
            seconds=time.perf_counter() - began,
        )

    def save_timing_cache(self) -> None:
        path = self._options.timing_cache
        if path is None:
            return
        try:
            write_whole(path, bytes(self._config.get_timing_cache().serialize()))
        except MrcfaError as error:
            raise type(error)(f"the engines are built, but: {error}") from None

    def _parsed(self, name: str, content: bytes, plugin: bool) -> tuple[Any, Any]:
        """Network and parser. Strongly typed: TensorRT 10 wants a flag, 11 knows nothing else."""
        kinds = self._trt.NetworkDefinitionCreationFlag
        flags = 1 << int(kinds.STRONGLY_TYPED) if hasattr(kinds, "STRONGLY_TYPED") else 0
        network = self._builder.create_network(flags)
        parser = self._trt.OnnxParser(network, logger(self._trt))
        if not parser.parse(content):
            raise Unsupported(f"{self._target.name} cannot read {name}: {_first(parser)}")
        if plugin and not _has_plugin(self._trt, network):
            raise Unsupported(
                f"{name} has no call of {PLUGIN_NAME.split()[0]}, so it cannot take the "
                "plugin; export the bundle without --inline-functions"
            )
        return network, parser

    def _configuration(self) -> Any:
        trt, options = self._trt, self._options
        config = self._builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        config.clear_flag(trt.BuilderFlag.TF32)  # it rounds FP32 products to ten bits
        if self._target.flavour is Flavour.RTX:
            if hasattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION"):  # or no graph can be recorded
                config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
            config.num_compute_capabilities = len(self._target.sms)
            for index, sm in enumerate(self._target.sms):
                config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{sm}"), index)
        if options.workspace_mb is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mb << 20)
        if options.optimization_level is not None:
            config.builder_optimization_level = options.optimization_level
        if options.version_compatible:
            config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
        if options.timing_cache is not None:
            self._use_timings(config, options.timing_cache)
        return config

    def _use_timings(self, config: Any, path: Path) -> None:
        """TensorRT takes an empty cache for one it cannot use; we would overwrite the file then."""
        try:
            known = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise InvalidValue(f"{path} cannot be read: {error.strerror}") from None
        with captured_log(self._trt) as log:
            cache = config.create_timing_cache(known)
            taken = cache is not None and config.set_timing_cache(cache, False)
        if not taken or any(message.severity <= WARNING for message in log):
            raise Mismatch(
                f"{path} is no timing cache of this GPU and {self._target.name}; "
                "delete it or name another file"
            )


def _shown(progress: Progress, part: str, number: int, forms: int, share: float) -> None:
    """The share of a graph that is done when a share of one of its forms is."""
    progress(part, (number + share) / forms)


def _has_plugin(trt: ModuleType, network: Any) -> bool:
    kinds = (network.get_layer(index).type for index in range(network.num_layers))
    return trt.LayerType.PLUGIN_V3 in kinds


def _first(parser: Any) -> str:
    """The parser's first error, with the node it is about."""
    error = parser.get_error(0)
    node = error.node_name()
    return (f"node {node} ({error.node_operator()}): " if node else "") + error.desc()


def _packed(
    plans: Mapping[str, Plan],
    forms: Mapping[str, FormChoice],
    target: Target,
    options: BuildOptions,
    variant: str,
) -> tuple[Engine, dict[str, bytes]]:
    """The engine's entry for the manifest, and its files.

    Their names carry a hash: a rebuild never overwrites what the manifest names until then.
    """
    contents: dict[str, bytes] = {}

    def named_by_content(part: str, kind: str, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()[:8]
        name = f"{part}.{target.tag}.{options.precision}.{digest}.{kind}"
        contents[name] = content
        return name

    listing = {part: plan.log.layers for part, plan in plans.items()}
    engine = Engine(
        flavour=target.flavour.value,
        tensorrt=target.trt.__version__,
        compute_capabilities=target.sms,
        precision=options.precision,
        variant=variant,
        plugin=PLUGIN_NAME if any(plan.plugin for plan in plans.values()) else None,
        encoder=named_by_content("encoder", "engine", plans["encoder"].content),
        decoder=named_by_content("decoder", "engine", plans["decoder"].content),
        layers=named_by_content("layers", "json", json.dumps(listing).encode())
        if all(listing.values())
        else None,
        version_compatible=options.version_compatible,
        costs={part: plan.log.cost for part, plan in plans.items() if plan.log.cost is not None},
        forms=forms,
        gpu=target.gpu,
    )
    return engine, contents
