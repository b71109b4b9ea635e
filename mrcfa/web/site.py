"""`mrcfa web` writes the site: a page, the runtime, a video, and a bundle that browsers can run."""

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path

from mrcfa.bundle import MANIFEST, Bundle, write_bundle
from mrcfa.bundle.manifest import Device, Manifest, Output
from mrcfa.errors import AlreadyExists, NotFound, Unsupported
from mrcfa.machine.files import replaced
from mrcfa.model.input_format import RGB
from mrcfa.video.sample import write_street

_PAGE = ("page.js", "segmenter.js", "isolation.js")
_BUNDLE = "bundle"
_CLIP_FRAMES = 60
_CLIP_WIDTH = 864
"""The largest width of the drawn video; its shape is that of the bundle's frames."""


def browser_variants(bundle: Bundle) -> list[str]:
    """The variants that browsers run: FP32 for WASM; for GPUs FP16 and FP32, if they are there."""
    manifest = bundle.manifest
    if manifest.streams > 1:
        raise Unsupported(
            f"{bundle.path} is for {manifest.streams} streams, and the page has one video; export "
            "a bundle with --streams 1"
        )
    if manifest.input != RGB:
        raise Unsupported(
            f"{bundle.path} takes {manifest.input} frames, and browsers deliver RGB; export a "
            "bundle with --input rgb"
        )
    if manifest.output is not Output.MASK:
        raise Unsupported(
            f"{bundle.path} has logits for output, and the page shows masks; export a bundle with "
            "--output mask"
        )
    names = [bundle.variant_name(Device.CPU, "fp32")]
    names += filter(None, (bundle.find_variant(Device.GPU, each) for each in ("fp16", "fp32")))
    return list(dict.fromkeys(names))


def write_site(
    bundle: Bundle,
    path: Path,
    runtime: Mapping[str, bytes],
    video: Path | None = None,
    force: bool = False,
) -> None:
    """Write the site at `path`; `video` takes the place of the drawn street that it offers."""
    variants = browser_variants(bundle)
    if video is not None and not video.is_file():
        raise NotFound(f"the video {video} does not exist")
    check_free(path, force)
    with replaced(path, folder=True, over=force) as root:
        sample = f"sample{video.suffix if video else '.mp4'}"
        if video:
            (root / sample).write_bytes(video.read_bytes())
        else:
            write_street(root / sample, _CLIP_FRAMES, _clip_size(bundle.manifest))
        _write_page(root, bundle.path.resolve().name, sample)
        write_bundle(root / _BUNDLE, lambda part: _write_graphs(part, bundle, variants))
        (root / "runtime").mkdir()
        for name, content in runtime.items():
            (root / "runtime" / name).write_bytes(content)


def check_free(path: Path, force: bool) -> None:
    """Raise an error if a site cannot be written at `path`."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not all((path / each).is_file() for each in ("index.html", f"{_BUNDLE}/{MANIFEST}")):
        raise AlreadyExists(f"{path} exists and is no site of mrcfa; choose another folder with -o")
    if not force:
        raise AlreadyExists(f"{path} exists; --force replaces it, -o chooses another folder")


def _write_page(root: Path, name: str, sample: str) -> None:
    view, page = resources.files("mrcfa.video.view"), resources.files("mrcfa.web") / "page"
    texts = {file: (page / file).read_text(encoding="utf-8") for file in _PAGE}
    texts["overlay.js"] = (view / "overlay.js").read_text(encoding="utf-8")
    texts["page.css"] = "".join(
        (folder / "page.css").read_text(encoding="utf-8") for folder in (view, page)
    )
    html = (page / "index.html").read_text(encoding="utf-8")
    texts["index.html"] = html.replace("{{name}}", escape(name)).replace(
        "{{sample}}", escape(sample)
    )
    for file, text in texts.items():
        (root / file).write_text(text, encoding="utf-8")


def _write_graphs(part: Path, bundle: Bundle, names: list[str]) -> Manifest:
    """Copy the graphs of these variants; a bundle of them alone is the site's manifest."""
    variants = {name: bundle.manifest.variants[name] for name in names}
    for variant in variants.values():
        for graph in variant.graphs.values():
            (part / graph.file).write_bytes(bundle.read_graph(graph))
    return replace(bundle.manifest, variants=variants, engines=())


def _clip_size(manifest: Manifest) -> tuple[int, int]:
    """The frames' size, not wider than `_CLIP_WIDTH`, with the even sides that H.264 needs."""
    height, width = manifest.frame
    scale = min(1.0, _CLIP_WIDTH / width)
    return max(32, round(height * scale / 2) * 2), max(32, round(width * scale / 2) * 2)
