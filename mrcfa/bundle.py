"""The bundle: a directory of graphs and engines under one manifest, all that passes between stages.

The manifest is written last and atomically, so a directory either is a whole bundle or none. A
reader checks the format's version, the hash of every file it opens, and that none lies elsewhere.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mrcfa.config import Config, preset
from mrcfa.errors import MrcfaError, named

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
"""The reference model's weights: parity is measured against them wherever the bundle goes."""


@dataclass(frozen=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """One ONNX file and its tensors; `wide` names its FP32 nodes if the rest is FP16."""

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int
    wide: tuple[str, ...] = ()
    cpu: str | None = None
    """A file that answers the same, faster on CPUs, and that no other device may be able to run."""


@dataclass(frozen=True)
class Cost:
    """What a part of the model costs per frame: multiply-adds and bytes read and written."""

    graph: str
    stage: str
    multiply_adds: int
    bytes_moved: int


@dataclass(frozen=True)
class Engine:
    """Two TensorRT plans and what they were built for."""

    flavour: str
    tensorrt: str
    compute_capabilities: tuple[int, ...]
    precision: str
    plugin: str | None
    encoder: str
    decoder: str
    layers: str | None
    version_compatible: bool = False
    """Whether other versions of the same major TensorRT load it too."""

    @property
    def name(self) -> str:
        return f"{self.flavour} {self.precision} " + "+".join(
            f"sm{sm}" for sm in self.compute_capabilities
        )


@dataclass(frozen=True)
class Manifest:
    mrcfa: str
    config: Config
    frame: tuple[int, int]
    """Height and width of the frames that the graphs take."""
    output: str
    graphs: Mapping[str, Mapping[str, Graph]]
    """Precision -> "encoder" and "decoder"."""
    classes: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    preprocessing: Mapping[str, Any]
    weights: Mapping[str, Any]
    """`origin`, `sha256` of the file they came from or null, `random` if they are untrained."""
    files: Mapping[str, Mapping[str, Any]]
    """File name -> `sha256` and `bytes`."""
    tools: Mapping[str, str]
    cost: tuple[Cost, ...] = ()
    parity: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    engines: tuple[Engine, ...] = ()

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str, path: Path) -> "Manifest":
        """Every mistake in the text is an error that names the file."""
        try:
            content = json.loads(text)
            version = content.pop("format")
            if version != FORMAT:
                raise MrcfaError(_other_format(path, version))
            return cls(
                **{
                    **content,
                    "config": _config(content["config"]),
                    "frame": _pair(content["frame"]),
                    "graphs": {
                        precision: {part: _graph(graph) for part, graph in graphs.items()}
                        for precision, graphs in content["graphs"].items()
                    },
                    "classes": tuple(content["classes"]),
                    "palette": tuple(tuple(colour) for colour in content["palette"]),
                    "cost": tuple(Cost(**cost) for cost in content["cost"]),
                    "engines": tuple(_engine(engine) for engine in content["engines"]),
                    "files": {name: dict(entry) for name, entry in content["files"].items()},
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise MrcfaError(f"{path} is damaged ({reason}); export the bundle anew") from None
        except RecursionError:
            raise MrcfaError(f"{path} is damaged (nested too deeply); export it anew") from None


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk. Opening reads the manifest alone; `file` checks each file when asked."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> "Bundle":
        path = Path(path)
        source = path / MANIFEST
        if not source.is_file():
            raise MrcfaError(
                f"{path} is no bundle: it has no {MANIFEST}; make one with: mrcfa export -o {path}"
            )
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MrcfaError(f"{source} cannot be read: {error}") from None
        bundle = cls(path, Manifest.from_json(text, source))
        for name in bundle.manifest.files:
            bundle._inside(name)
        return bundle

    @property
    def config(self) -> Config:
        return self.manifest.config

    def graph(self, precision: str, part: str) -> Graph:
        try:
            return self.manifest.graphs[precision][part]
        except KeyError:
            raise MrcfaError(
                f"{self.path} has no {precision} graphs, only {named(self.manifest.graphs)}; "
                f"export it with --precision {precision}"
            ) from None

    def file(self, name: str) -> Path:
        """The path of one of the bundle's files, its size and hash being as the manifest says."""
        path = self._inside(name)
        expected = self.manifest.files.get(name)
        if expected is None:
            raise MrcfaError(f"{self.path} does not list {name} among its files")
        if not path.is_file():
            raise MrcfaError(f"{path} is missing; export or build the bundle anew")
        if path.stat().st_size != expected.get("bytes") or sha256(path) != expected.get("sha256"):
            raise MrcfaError(
                f"{path} is not the file that the manifest describes (its hash differs); "
                "it was changed or cut short, so export or build the bundle anew"
            )
        return path

    def _inside(self, name: str) -> Path:
        path = self.path / name
        try:
            inside = Path(name).name == name and path.resolve().parent == self.path.resolve()
        except (OSError, ValueError):  # a name that no file can have
            inside = False
        if not inside:
            raise MrcfaError(f"{self.path / MANIFEST} names {name!r}, which leaves the directory")
        return path

    def with_engine(self, engine: Engine, contents: Mapping[str, bytes]) -> "Bundle":
        """Add an engine or replace one of the same name; whenever this stops, all is whole."""
        kept = tuple(other for other in self.manifest.engines if other.name != engine.name)
        dropped = {
            name
            for other in self.manifest.engines
            if other.name == engine.name
            for name in (other.encoder, other.decoder, other.layers)
            if name
        }
        written: list[Path] = []
        try:
            for name, content in contents.items():
                written.append(self._inside(name))
                _write(written[-1], content)
            files = {
                name: entry for name, entry in self.manifest.files.items() if name not in dropped
            }
            files |= {path.name: _described(path) for path in written}
            manifest = replace(self.manifest, engines=(*kept, engine), files=files)
            _write(self.path / MANIFEST, manifest.to_json().encode())
        except BaseException as error:
            for path in written:
                if path.name not in self.manifest.files:
                    path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise MrcfaError(
                    f"{self.path} cannot take the engine: {error.strerror or error}"
                ) from None
            raise
        for name in dropped - contents.keys():
            (self.path / name).unlink(missing_ok=True)
        return Bundle(self.path, manifest)


@contextmanager
def new_bundle(
    path: str | Path, force: bool = False
) -> Iterator[tuple[Path, Callable[[Manifest], Bundle]]]:
    """A scratch directory to fill, and the call that makes it the bundle at `path`.

    Leaving without that call, or by an exception, removes the scratch and leaves `path` as it was.
    """
    path = Path(path)
    _check_free(path, force)
    scratch = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
    try:
        scratch.mkdir(parents=True)
    except OSError as error:
        raise MrcfaError(f"{path} cannot be written: {error.strerror}") from None

    def finish(manifest: Manifest) -> Bundle:
        files = {entry.name: _described(entry) for entry in sorted(scratch.iterdir())}
        manifest = replace(manifest, files=files)
        _write(scratch / MANIFEST, manifest.to_json().encode())
        _move_into_place(scratch, path)
        return Bundle(path, manifest)

    try:
        yield scratch, finish
    except OSError as error:
        raise MrcfaError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_free(path: Path, force: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise MrcfaError(f"{path} exists and is no bundle; choose another directory with -o")
    if not force:
        raise MrcfaError(f"{path} exists; --force replaces it, -o chooses another directory")


def _move_into_place(scratch: Path, path: Path) -> None:
    """A directory cannot be replaced in one step, so an old bundle steps aside first."""
    aside = scratch.with_suffix(".old")
    if path.exists():
        path.rename(aside)
    scratch.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def _write(path: Path, content: bytes) -> None:
    """Under a temporary name first, flushed to disk, then renamed."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _described(path: Path) -> dict[str, Any]:
    return {"sha256": sha256(path), "bytes": path.stat().st_size}


def _other_format(path: Path, version: object) -> str:
    if isinstance(version, int) and version > FORMAT:
        return f"{path} has format {version}, newer than this mrcfa reads ({FORMAT}); update mrcfa"
    return f"{path} has format {version!r}, which this mrcfa does not read; export it anew"


def _config(content: Mapping[str, Any]) -> Config:
    fields = dict(content)
    pairs = {name: tuple(fields.pop(name)) for name in ("size", "references")}
    return preset(fields.pop("dataset"), fields.pop("backbone"), **pairs, **fields)


def _pair(values: Any) -> tuple[int, int]:
    height, width = values
    return int(height), int(width)


def _tensors(specs: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(s["name"], s["dtype"], tuple(s["shape"])) for s in specs)


def _graph(content: Mapping[str, Any]) -> Graph:
    if not isinstance(content["file"], str):
        raise TypeError("file is no text")
    if not isinstance(content.get("cpu"), str | None):
        raise TypeError("cpu is no text")
    return Graph(
        **{
            **content,
            "inputs": _tensors(content["inputs"]),
            "outputs": _tensors(content["outputs"]),
            "wide": tuple(content["wide"]),
        }
    )


def _engine(content: Mapping[str, Any]) -> Engine:
    capabilities = tuple(content["compute_capabilities"])
    return Engine(**{**content, "compute_capabilities": capabilities})
