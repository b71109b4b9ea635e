"""The bundle: a directory of graphs and engines with one manifest.

Export, build, quantize and the backends share nothing but this directory. The manifest is written
last and atomically, so a directory is either a whole bundle or none. A reader checks the version of
the format, the hash of every file that it opens, and that every file lies inside the directory.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from mrcfa.bundle.archives import archive_refusal
from mrcfa.bundle.graph_file import check_graph
from mrcfa.bundle.manifest import Device, Engine, FileEntry, Graph, Manifest, Variant
from mrcfa.bundle.precisions import EIGHT_BITS, PREFERRED, precision_named
from mrcfa.errors import (
    AlreadyExists,
    Damaged,
    InvalidValue,
    NotFound,
    Unsupported,
    WrongState,
    named,
)
from mrcfa.machine.files import locked, replaced, sha256, write_errors_reported, write_whole
from mrcfa.model.config import Config

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
"""The weights of the reference model, so that parity can be measured on every machine."""
EXPECTED = "expected.npz"
"""`masks`: the reference's masks of the built-in clip, for machines that cannot run it."""


class Unfit(Unsupported):
    """A backend cannot run this bundle on this machine; another backend may."""


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk. `open` reads only the manifest; `file` and `read` check a file each."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> "Bundle":
        path = Path(path)
        source = path / MANIFEST
        if refusal := archive_refusal(path):
            raise InvalidValue(refusal)
        if not source.is_file():
            raise NotFound(
                f"{path} is no bundle: it has no {MANIFEST}; make one with: mrcfa export -o {path}"
            )
        bundle = cls(path, Manifest.read(source))
        for name in bundle.manifest.files:
            bundle._inside(name)
        return bundle

    @property
    def config(self) -> Config:
        return self.manifest.config

    def find_variant(self, device: Device, precision: str | None = None) -> str | None:
        """The name of the best variant for a kind of device, or None.

        A CPU also runs variants for GPUs, if the bundle has no other. A GPU never runs variants for
        CPUs. Without a precision, the one that the device prefers comes first.
        """

        def rank(name: str) -> tuple[bool, bool, str]:
            variant = self.manifest.variants[name]
            return variant.device is not device, variant.precision != PREFERRED[device], name

        fitting = (
            name
            for name, variant in self.manifest.variants.items()
            if precision in (None, variant.precision)
            and (device is Device.CPU or variant.device is Device.GPU)
        )
        return min(fitting, key=rank, default=None)

    def variant(self, device: Device, precision: str | None = None) -> Variant:
        return self.manifest.variants[self.variant_name(device, precision)]

    def variant_name(self, device: Device, precision: str | None = None) -> str:
        """The name that `find_variant` finds, or an error that says how to add such a variant."""
        name = self.find_variant(device, precision)
        if name is not None:
            return name
        wanted = precision or PREFERRED[device]
        remedy = f"export it with --variants {precision_named(wanted).variant_for(device)}"
        if wanted in EIGHT_BITS:
            remedy = f"make them with: mrcfa quantize {self.path} --precision {wanted} --data DATA"
        raise Unfit(
            f"{self.path} has no {f'{precision} ' if precision else ''}graphs for a "
            f"{device.value.upper()}, only {named(sorted(self.manifest.variants))}; "
            f"{remedy}"
        )

    def file(self, name: str) -> Path:
        """The path of a file, after a check of its size and hash against the manifest."""
        path, expected = self._listed(name)
        if _described(path, expected.bytes) != expected:
            raise self._changed_file(path)
        return path

    def read(self, name: str) -> bytes:
        """The content of a file, after the same check.

        The returned bytes are the ones that were hashed, so a file that changes meanwhile is safe.
        """
        path, expected = self._listed(name)
        content = path.read_bytes() if path.stat().st_size == expected.bytes else b""
        if FileEntry(hashlib.sha256(content).hexdigest(), len(content)) != expected:
            raise self._changed_file(path)
        return content

    def read_graph(self, graph: Graph) -> bytes:
        """The content of an ONNX file that needs no other file and has the manifest's tensors."""
        content = self.read(graph.file)
        check_graph(content, self.path / graph.file, graph)
        return content

    def _listed(self, name: str) -> tuple[Path, FileEntry]:
        path = self._inside(name)
        expected = self.manifest.files.get(name)
        if expected is None:
            raise NotFound(f"{self.path} does not list {name} among its files")
        if not path.is_file():
            raise NotFound(f"{path} is missing; export or build the bundle anew")
        return path, expected

    def _changed_file(self, path: Path) -> Damaged:
        return Damaged(
            f"{path} is not the file that the manifest describes (its hash differs); "
            "it was changed or cut short, so export or build the bundle anew"
        )

    def _inside(self, name: str) -> Path:
        path = self.path / name
        try:
            inside = Path(name).name == name and path.resolve().parent == self.path.resolve()
        except (OSError, ValueError):  # a name that no file can have
            inside = False
        if not inside:
            raise Damaged(f"{self.path / MANIFEST} names {name!r}, which leaves the directory")
        return path

    def with_engine(self, engine: Engine, contents: Mapping[str, bytes]) -> "Bundle":
        """Add an engine, or replace the one of the same name.

        The bundle stays whole wherever this stops. The graphs that the engine was built from must
        still be in the bundle.
        """

        def changed(manifest: Manifest) -> tuple[Manifest, set[str]]:
            kept = tuple(each for each in manifest.engines if each.name != engine.name)
            dropped = _files_of(each for each in manifest.engines if each.name == engine.name)
            return replace(manifest, engines=(*kept, engine)), dropped

        graphs = self.manifest.variants[engine.variant].graphs.values()
        return self._changed(changed, contents, {graph.file for graph in graphs})

    def with_variant(self, name: str, variant: Variant, contents: Mapping[str, bytes]) -> "Bundle":
        """Add a variant, or replace the one of this name and remove the engines built from it.

        The weights that the variant was made from must still be in the bundle.
        """

        def changed(manifest: Manifest) -> tuple[Manifest, set[str]]:
            if manifest.variants.get(name) != self.manifest.variants.get(name):
                raise WrongState(
                    f"{self.path} got another variant {name} meanwhile; this one is not added"
                )
            kept = tuple(engine for engine in manifest.engines if engine.variant != name)
            dropped = _files_of(each for each in manifest.engines if each.variant == name)
            if name in manifest.variants:
                before = manifest.variants[name]
                dropped |= {graph.file for graph in before.graphs.values()}
            variants = {**manifest.variants, name: variant}
            return replace(manifest, variants=variants, engines=kept), dropped

        return self._changed(changed, contents, {WEIGHTS})

    def _changed(
        self,
        change: Callable[[Manifest], tuple[Manifest, set[str]]],
        contents: Mapping[str, bytes],
        sources: set[str],
    ) -> "Bundle":
        """Write the files, then the manifest, then delete the files that it no longer names.

        `change` gets the manifest that is on disk now, because another process may have added to
        the bundle, and returns the new manifest and the names to drop. The lock keeps others out.
        """
        with write_errors_reported(str(self.path)), locked(self.path):
            current = Bundle.open(self.path)
            before, now = self.manifest.files, current.manifest.files
            if any(now.get(name) != before.get(name) for name in sources):
                raise WrongState(f"{self.path} was exported anew meanwhile; do this again with it")
            manifest, dropped = change(current.manifest)
            dropped -= contents.keys()
            try:
                with ExitStack() as parts:  # all are written before any takes its name
                    for name, content in contents.items():
                        part = parts.enter_context(replaced(self._inside(name)))
                        part.write_bytes(content)
                files = {name: entry for name, entry in now.items() if name not in dropped}
                files |= {name: _described(self.path / name) for name in contents}
                manifest = replace(manifest, files=files)
                write_whole(self.path / MANIFEST, manifest.to_json().encode())
            except BaseException:
                for name in contents.keys() - now.keys():
                    (self.path / name).unlink(missing_ok=True)
                raise
            for name in dropped:
                (self.path / name).unlink(missing_ok=True)
        return Bundle(self.path, manifest)


def write_bundle(path: Path, fill: Callable[[Path], Manifest], force: bool = False) -> Bundle:
    """Write a bundle: `fill` writes files into an empty directory and returns the manifest.

    If `fill` raises, `path` stays as it was. The field `files` of the manifest is filled in here.
    """
    _check_free(path, force)
    with replaced(path, folder=True, over=force) as scratch:
        manifest = fill(scratch)
        files = {entry.name: _described(entry) for entry in sorted(scratch.iterdir())}
        manifest = replace(manifest, files=files)
        write_whole(scratch / MANIFEST, manifest.to_json().encode())
    return Bundle(path, manifest)


def _files_of(engines: Iterable[Engine]) -> set[str]:
    names = (name for each in engines for name in (each.encoder, each.decoder, each.layers))
    return {name for name in names if name}


def _check_free(path: Path, force: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise AlreadyExists(f"{path} exists and is no bundle; choose another directory with -o")
    if not force:
        raise AlreadyExists(f"{path} exists; --force replaces it, -o chooses another directory")


def _described(path: Path, expected_bytes: int | None = None) -> FileEntry:
    """Size and hash of a file; the hash is left empty if the size is not the expected one."""
    size = path.stat().st_size
    return FileEntry("" if expected_bytes not in (None, size) else sha256(path), size)
