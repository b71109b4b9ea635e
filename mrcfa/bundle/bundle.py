"""The bundle: a directory of graphs and engines under one manifest, all that passes between stages.

The manifest is written last and atomically, so a directory either is a whole bundle or none. A
reader checks the format's version, the hash of every file it opens, and that none lies elsewhere.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from mrcfa.bundle.graph_file import check_graph
from mrcfa.bundle.manifest import Device, Engine, FileEntry, Graph, Manifest, Variant
from mrcfa.bundle.precisions import EIGHT_BITS, PREFERRED, precision_named
from mrcfa.errors import AlreadyExists, Damaged, NotFound, Unsupported, WrongState, named
from mrcfa.machine.files import locked, refusals_told, replaced, sha256, write_whole
from mrcfa.model.config import Config

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
"""The reference model's weights: parity is measured against them wherever the bundle goes."""
EXPECTED = "expected.npz"
"""`masks`: the reference's for the built-in clip, for machines that cannot run the reference."""


class Unfit(Unsupported):
    """What cannot run this bundle on this machine; another backend may."""


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
        """The name of the variant that runs best on a device, or None.

        A CPU also runs what was laid out for GPUs, if it has nothing better; a GPU never runs what
        was laid out for CPUs.
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
        """As `find_variant`, but none is an error that says how to get one."""
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
        """The path of one of the bundle's files, its size and hash being as the manifest says."""
        path, expected = self._listed(name)
        if _described(path, expected.bytes) != expected:
            raise self._changed_file(path)
        return path

    def read(self, name: str) -> bytes:
        """The content of one of the bundle's files, checked as `file` does.

        What was hashed is what is returned, so a file that changes meanwhile cannot slip through.
        """
        path, expected = self._listed(name)
        content = path.read_bytes() if path.stat().st_size == expected.bytes else b""
        if FileEntry(hashlib.sha256(content).hexdigest(), len(content)) != expected:
            raise self._changed_file(path)
        return content

    def read_graph(self, graph: Graph) -> bytes:
        """An ONNX file that is whole in itself and has the ends that the manifest names."""
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
        """Add an engine or replace one of the same name; whenever this stops, all is whole.

        The engine was built from this bundle's graphs, which must still be there.
        """

        def changed(manifest: Manifest) -> tuple[Manifest, set[str]]:
            kept = tuple(each for each in manifest.engines if each.name != engine.name)
            dropped = _files_of(each for each in manifest.engines if each.name == engine.name)
            return replace(manifest, engines=(*kept, engine)), dropped

        graphs = self.manifest.variants[engine.variant].graphs.values()
        return self._changed(changed, contents, {graph.file for graph in graphs})

    def with_variant(self, name: str, variant: Variant, contents: Mapping[str, bytes]) -> "Bundle":
        """Add a variant or replace the one of this name, and drop the engines built from that.

        The variant was made from this bundle's weights, which must still be there.
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
        """Files first, then the manifest, then what nothing names any more.

        `change` makes the new manifest of the one that is there now, and the names it drops:
        another process may have added something meanwhile. While the lock is held, none can.
        """
        with refusals_told(str(self.path)), locked(self.path):
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
    """The bundle at `path`, from what `fill` puts into an empty directory and says of it.

    If `fill` raises, `path` stays as it was. The manifest's `files` are listed here.
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
    """Size and hash; the hash is spared where the size is not the expected one."""
    size = path.stat().st_size
    return FileEntry("" if expected_bytes not in (None, size) else sha256(path), size)
