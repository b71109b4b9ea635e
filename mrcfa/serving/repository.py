"""`mrcfa triton` writes a model repository for NVIDIA Triton, completely or not at all.

The platforms `onnxruntime` and `tensorrt` have three models per bundle: the encoder, the decoder,
whose state Triton keeps, and the ensemble of both from `image` to `mask`. The platform `python` has
one model, which runs `mrcfa.Stream`.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import mrcfa
from mrcfa.backends.served import Served
from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.manifest import Device, Engine, Graph, Output, TensorSpec
from mrcfa.bundle.precisions import PREFERRED
from mrcfa.errors import AlreadyExists, InvalidValue, Mismatch, Unsupported, named
from mrcfa.machine.files import replaced, sha256, write_whole
from mrcfa.serving import model_config as config

RECORD = "mrcfa.json"
"""File that lists the repository's sources; Triton ignores it, because it looks at folders only."""
MODEL = "mrcfa"
"""Name under which a single bundle is served."""
_PYTHON_MODEL = '''"""Streams of the bundle beside this file; see docs/serving.md of mrcfa."""

from mrcfa.serving.python_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


class Platform(str, Enum):
    ONNXRUNTIME = "onnxruntime"
    TENSORRT = "tensorrt"
    PYTHON = "python"


@dataclass(frozen=True)
class ServingOptions:
    platform: Platform = Platform.ONNXRUNTIME
    device: Device = Device.CPU
    precision: str | None = None
    """Precision of the graphs; None: the device's default."""
    instances: int = 1
    sequences: int = 32
    """Cameras that one instance holds at once; a bundle for several streams has its own number."""
    idle_s: float = 10.0
    """Time without a frame after which a sequence ends and its place is free."""
    backend: str = "auto"
    """Backend of `Stream` in the platform `python`."""
    threads: int = 0
    """CPU threads of an instance on CPUs; 0: all cores."""

    def __post_init__(self) -> None:
        for name, value in (("instances", self.instances), ("sequences", self.sequences)):
            if value < 1:
                raise InvalidValue(f"--{name} is {value}; use 1 or more")
        if self.idle_s <= 0:
            raise InvalidValue(f"--idle is {self.idle_s:g}; use more than 0 seconds")


def write_repository(
    bundles: Sequence[Bundle], path: Path, options: ServingOptions, force: bool = False
) -> list[str]:
    """Write the repository at `path`; returns the model names for `triton://HOST:PORT/NAME`."""
    models = _named_bundles(bundles)
    _check_free(path, force)
    with replaced(path, folder=True, over=force) as root:
        for name, bundle in models.items():
            if options.platform is Platform.PYTHON:
                _write_python(root, name, bundle, options)
            else:
                _write_graphs(root, name, bundle, options)
        files = sorted(file for file in root.rglob("*") if file.is_file())
        record = {
            "mrcfa": mrcfa.__version__,
            "platform": options.platform.value,
            "models": {name: str(bundle.path) for name, bundle in models.items()},
            "files": {str(file.relative_to(root)): sha256(file) for file in files},
        }
        write_whole(root / RECORD, json.dumps(record, indent=1).encode())
    return list(models)


def _named_bundles(bundles: Sequence[Bundle]) -> dict[str, Bundle]:
    """Model name -> bundle: a single bundle is `mrcfa`, several are named by their folders."""
    if len(bundles) == 1:
        return {MODEL: bundles[0]}
    found: dict[str, Bundle] = {}
    for bundle in bundles:
        name = bundle.path.resolve().name
        if name in found:
            raise Mismatch(
                f"{found[name].path} and {bundle.path} would both be served as {name}; "
                "rename one of the folders"
            )
        found[name] = bundle
    return found


def _check_free(path: Path, force: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / RECORD).is_file():
        raise AlreadyExists(
            f"{path} exists and is not a repository of mrcfa; choose another directory with -o"
        )
    if not force:
        raise AlreadyExists(
            f"{path} exists; replace it with --force, or choose another directory with -o"
        )


def _write_python(root: Path, name: str, bundle: Bundle, options: ServingOptions) -> None:
    """Write the model of the platform `python`, with the whole bundle inside for any backend."""
    manifest = bundle.manifest
    version = _version(root, name)
    write_whole(version / "model.py", _PYTHON_MODEL.encode())
    (version / "bundle").mkdir()
    for file in manifest.files:
        _link(bundle.file(file), version / "bundle" / file)
    _link(bundle.path / MANIFEST, version / "bundle" / MANIFEST)
    batch = _batch(bundle)
    sequences = batch or options.sequences
    variant = bundle.variant_name(options.device, options.precision)
    served = Served.of(bundle, variant, Output.MASK, sequences * options.instances)
    parameters = {
        "backend": options.backend,
        "precision": options.precision or "",
        "threads": str(options.threads),
        "streams": str(sequences),
    }
    ends = Graph(
        "",
        (TensorSpec("image", "uint8", (1, *manifest.input.shape(manifest.frame))),),
        (TensorSpec("mask", "uint8", (1, *manifest.frame)),),
    )
    wait_us = config.WAIT_US if batch else 0
    _write_config(
        root,
        {
            "name": name,
            "backend": "python",
            "max_batch_size": batch,
            **config.tensors(ends, bool(batch)),
            "sequence_batching": config.oldest(sequences, options.idle_s, wait_us),
            "instance_group": config.instances(options.instances, options.device),
            "parameters": config.parameters(served.to_parameters() | parameters),
        },
    )


def _write_graphs(root: Path, name: str, bundle: Bundle, options: ServingOptions) -> None:
    engines: list[Engine] = []
    if options.platform is Platform.TENSORRT:
        engines = _engines(bundle, options)
        options = replace(options, device=Device.GPU)
        chosen = engines[0].variant
    else:
        chosen = bundle.variant_name(options.device, options.precision)
    variant, batch = bundle.manifest.variants[chosen], _batch(bundle)
    # Engines cannot be changed: if only the frame number is fed back, it is their state.
    stateful = bool(bundle.config.references or engines)
    sequences = (batch or options.sequences) * options.instances if stateful else 0
    served = Served.of(bundle, chosen, bundle.manifest.output, sequences)
    for part, graph in variant.graphs.items():
        version = _version(root, f"{name}_{part}")
        if engines:
            files = _plans(bundle, engines, part, version)
        else:
            files = {"platform": "onnxruntime_onnx"}
            bundle.read_graph(graph)  # refuses tensors in other files, which Triton would load
            _place(bundle.file(graph.file), version / "model.onnx", stateful, bool(batch))
        keeps_state = stateful and part == "decoder"
        (served_file, *_) = sorted(version.glob("model.*"))
        parameters = {"sha256": sha256(served_file)}
        if options.device is Device.CPU:
            parameters["intra_op_thread_count"] = str(options.threads)
        _write_config(
            root,
            {
                "name": f"{name}_{part}",
                **files,
                "max_batch_size": batch,
                **config.tensors(graph, bool(batch)),
                **(
                    config.sequences(graph, batch, options.sequences, options.idle_s)
                    if keeps_state
                    else config.stateless(graph, batch)
                ),
                "instance_group": config.instances(options.instances, options.device),
                "parameters": config.parameters(parameters),
            },
            config.NO_CUDA_GRAPHS if engines else "",
        )
    _version(root, name).joinpath(".keep").touch()  # some file stores drop empty folders
    ends = Graph("", variant.encoder.inputs, variant.decoder.outputs)
    _write_config(
        root,
        {
            **config.ensemble(name, f"{name}_encoder", f"{name}_decoder", variant.graphs),
            "max_batch_size": batch,
            **config.tensors(ends, bool(batch)),
            "parameters": config.parameters(served.to_parameters()),
        },
    )


def _batch(bundle: Bundle) -> int:
    """Triton's `max_batch_size`: the bundle's streams, or 0 (no batches) for one stream."""
    return bundle.manifest.streams if bundle.manifest.streams > 1 else 0


def _place(source: Path, target: Path, stateful: bool, batched: bool) -> None:
    if stateful and not batched:
        return _link(source, target)
    from mrcfa.serving.graphs import write_adapted

    write_adapted(source, target, stateful, batched)


def _engines(bundle: Bundle, options: ServingOptions) -> list[Engine]:
    """Engines of one variant that Triton can load."""
    if _batch(bundle):
        raise Unsupported(
            f"the engines of {bundle.path} need exactly {bundle.manifest.streams} streams, while "
            "the size of Triton's batches varies; choose --platform python or onnxruntime, or "
            "export with --streams 1"
        )
    found = [engine for engine in bundle.manifest.engines if engine.flavour == "tensorrt"]
    if not found:
        others = named(engine.name for engine in bundle.manifest.engines) or "no engine"
        raise Unsupported(
            f"Triton's tensorrt backend loads engines of TensorRT, not of TensorRT-RTX, and "
            f"{bundle.path} has {others}; build one on the GPU with: "
            f"mrcfa build {bundle.path} --flavour tensorrt, or choose --platform python"
        )
    precision = options.precision or PREFERRED[Device.GPU]
    fitting = [engine for engine in found if engine.precision == precision]
    if not fitting:
        raise Unsupported(
            f"{bundle.path} has no {precision} engine of TensorRT, only "
            f"{named(engine.name for engine in found)}; choose one of them with --precision"
        )
    return [engine for engine in fitting if engine.variant == fitting[0].variant]


def _plans(
    bundle: Bundle, engines: Sequence[Engine], part: str, version: Path
) -> dict[str, object]:
    """Settings by which every GPU loads the plan for its own compute capability."""
    names: dict[str, str] = {}
    for engine in engines:
        file = engine.encoder if part == "encoder" else engine.decoder
        plan = "model.plan" if engine is engines[0] else f"{Path(file).stem}.plan"
        _link(bundle.file(file), version / plan)
        for sm in engine.compute_capabilities:
            names.setdefault(f"{sm // 10}.{sm % 10}", plan)
    return {
        "platform": "tensorrt_plan",
        "default_model_filename": "model.plan",
        "cc_model_filenames": [{"key": sm, "value": plan} for sm, plan in sorted(names.items())],
    }


def _version(root: Path, name: str) -> Path:
    path = root / name / "1"
    path.mkdir(parents=True)
    return path


def _write_config(root: Path, message: Mapping[str, object], remark: str = "") -> None:
    text = remark + config.to_text(message)
    write_whole(root / str(message["name"]) / "config.pbtxt", text.encode())


def _link(source: Path, target: Path) -> None:
    """Make a hard link if the file system allows it, else a copy; bundles never change in place."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
