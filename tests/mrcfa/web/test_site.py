"""The site as files: a whole bundle in it, and nothing written where something is wrong."""

import re
from dataclasses import replace

import av
import pytest
from naming import names, naming

from mrcfa.bundle import Bundle
from mrcfa.errors import AlreadyExists, NotFound, Unsupported
from mrcfa.model.input_format import InputFormat, Layout
from mrcfa.web.site import browser_variants, write_site

RUNTIME = {"ort.wasm.min.js": b"export {};"}


@pytest.fixture
def site(bundle, tmp_path):
    path = tmp_path / "site"
    write_site(Bundle.open(bundle("b0")), path, RUNTIME)
    return path


def test_the_site_holds_a_bundle_of_the_variants_for_browsers(site, bundle):
    inside, whole = Bundle.open(site / "bundle"), Bundle.open(bundle("b0"))
    assert list(inside.manifest.variants) == ["fp32", "fp16"]
    files = {file.name for file in (site / "bundle").iterdir()}
    assert files == {"manifest.json", *inside.manifest.files}
    for variant in inside.manifest.variants.values():
        for graph in variant.graphs.values():
            assert inside.read_graph(graph) == whole.read_graph(graph)


def test_every_file_that_the_page_names_is_there(site):
    page = (site / "index.html").read_text()
    assert "{{" not in page
    named = re.findall(r'(?:src|href|data-sample)="([^"]+)"', page)
    assert {
        name for name in named if not name.startswith("data:") and not (site / name).is_file()
    } == set()
    assert (site / "runtime" / "ort.wasm.min.js").read_bytes() == b"export {};"
    with av.open(str(site / "sample.mp4")) as video:
        picture = next(video.decode(video=0))
    assert (picture.height, picture.width) == (96, 160)


def test_no_page_names_another_host(site):
    for file in site.glob("*.*"):
        if file.suffix in (".html", ".js", ".css"):
            hosts = re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", file.read_text())
            assert not hosts, file


def test_a_video_of_ones_own_is_the_sample(bundle, tmp_path):
    video = tmp_path / 'my "own".webm'
    video.write_bytes(b"a video")
    write_site(Bundle.open(bundle("b0")), tmp_path / "site", RUNTIME, video)
    assert (tmp_path / "site" / "sample.webm").read_bytes() == b"a video"
    with pytest.raises(NotFound, match=naming(tmp_path / "none.mp4")):
        write_site(Bundle.open(bundle("b0")), tmp_path / "new", RUNTIME, tmp_path / "none.mp4")
    assert not (tmp_path / "new").exists()


def test_only_a_site_is_replaced_and_only_with_force(site, bundle, tmp_path):
    opened, other = Bundle.open(bundle("b0")), tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    for path, force in ((site, False), (other, True)):
        with pytest.raises(AlreadyExists, match=naming(path, "-o")):
            write_site(opened, path, RUNTIME, force=force)
    assert (other / "index.html").read_text() == "mine"
    write_site(opened, site, {"new.js": b""}, force=True)
    assert [file.name for file in (site / "runtime").iterdir()] == ["new.js"]


def test_a_bundle_that_no_browser_can_run_is_refused_with_the_remedy(bundle):
    several, scores, whole = bundle("b0", streams=3), bundle("b1", output="logits"), bundle("b0")
    with pytest.raises(Unsupported, match=naming(several, 3, "--streams 1")):
        browser_variants(Bundle.open(several))
    with pytest.raises(Unsupported, match=naming(scores, "--output mask")):
        browser_variants(Bundle.open(scores))
    manifest = Bundle.open(whole).manifest
    bgr = replace(manifest, input=InputFormat(Layout.BGR))
    with pytest.raises(Unsupported, match=naming(whole, "BGR", "--input rgb")):
        browser_variants(Bundle(whole, bgr))
    half = replace(manifest, variants={"fp16": manifest.variants["fp16"]})
    with pytest.raises(Unsupported, match=naming(whole, "fp16", "--variants fp32")):
        browser_variants(Bundle(whole, half))


def test_the_command_says_what_it_wrote_and_what_gpus_lack(command, bundle, monkeypatch):
    monkeypatch.setattr("mrcfa.web.runtime.runtime_files", lambda archive: RUNTIME)
    code, out, err = command("web", bundle("b0"), "-o", "site")
    assert code == 0
    assert names(out.decode(), "fp32", "fp16", "http.server", "site")
    assert names(err, "16-bit shaders", "--variants fp32,fp16,fp32-gpu")
    assert err.count("\n") == 1
    code, out, err = command("web", bundle("b0"), "-o", "site")
    assert (code, out) == (2, b"")
    assert names(err, "site", "--force")
