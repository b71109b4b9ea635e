"""The site in a real browser: its masks, its sentences, its controls."""

from contextlib import closing
from fractions import Fraction

import av
import numpy as np
import pytest
from static_host import COLLECT, collected

from mrcfa import Stream
from mrcfa.bundle import Bundle
from mrcfa.video.sinks import open_sink
from mrcfa.web.site import write_site

READY = "!!document.querySelector('#sample:enabled')"
NOTICE = "document.querySelector('#notice:not([hidden])')?.textContent"
SIZE = (163, 289)
SHADERS_S = 300
"""Time for three frames on a software adapter, whose first one compiles shaders."""


def opened(browser, host, query="", **how):
    tab = browser.open(host.url + query, **how)
    tab.until(READY)
    return tab


def choose(tab, file):
    root = tab("DOM.getDocument")["root"]["nodeId"]
    node = tab("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    tab("DOM.setFileInputFiles", files=[str(file)], nodeId=node)


def click(tab, name):
    tab.value(f"document.getElementById('{name}').click()")


def check_masks(frames, bundle):
    """Compare the page's masks with those of ONNX Runtime on the CPU, for the page's own frames."""
    with closing(Stream(bundle, backend="onnxruntime:cpu")) as stream:
        for number, image, mask in frames:
            if number == 1:
                stream.reset()
            assert (stream(image) == mask).mean() >= 0.999, number


@pytest.fixture(scope="module")
def playing(browser, host):
    """A tab that plays the sample, and has collected all its frames and masks."""
    tab = opened(browser, host)
    tab.value(COLLECT)
    click(tab, "sample")
    tab.until("collected.length > 0")
    yield tab
    tab.close()


def test_wasm_computes_the_masks_of_onnx_runtime_also_after_a_jump(playing, demo):
    playing.until("collected.length >= 12")
    playing.value("place.value = 0, place.dispatchEvent(new Event('input'))")
    playing.until("collected.findLastIndex(([number]) => number == 1) > 0")
    playing.until("collected.at(-1)[0] >= 3")
    frames = collected(playing, SIZE)
    assert [number for number, *_ in frames[:12]] == list(range(1, 13))
    assert len(np.unique(frames[11][2])) > 4
    check_masks(frames, demo("fp32"))


def test_a_plain_host_is_enough_for_threads_and_no_other_host_is_asked(playing, host):
    assert playing.value("crossOriginIsolated")
    threads = min(playing.value("navigator.hardwareConcurrency"), 4)
    said = playing.value("document.getElementById('provider').textContent")
    assert said == f"WASM {threads} thread{'s' * (threads > 1)}, FP32"
    sites = "performance.getEntries().map(({name}) => URL.parse(name)?.origin).filter(Boolean)"
    assert set(playing.value(sites)) <= {host.url.rstrip("/"), "null"}
    refused = playing.value(
        "new Promise(done => { document.onsecuritypolicyviolation = done;"
        "fetch('http://localhost:1').catch(() => {}); }).then(one => one.effectiveDirective)"
    )
    assert refused == "connect-src"


def test_a_page_that_is_opened_as_a_file_says_how_to_serve_it(browser, demo, tmp_path):
    write_site(Bundle.open(demo("fp32")), tmp_path / "site", {})
    tab = browser.open((tmp_path / "site" / "index.html").as_uri())
    assert "python3 -m http.server" in tab.until(NOTICE)
    assert tab.value("document.querySelectorAll('#sources button:disabled').length") == 3
    tab.close()


def test_a_bad_video_and_a_missing_camera_are_named_and_the_next_video_plays(playing, tmp_path):
    bad, silent = tmp_path / "bad.mp4", tmp_path / "silent.mp4"
    bad.write_bytes(b"no video" * 100)
    with av.open(str(silent), "w") as file:
        track = file.add_stream("aac", rate=48000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 48000), np.float32), "flt", "mono")
        sound.sample_rate = 48000
        file.mux(track.encode(sound))
        file.mux(track.encode(None))
    for file in (bad, silent):
        choose(playing, file)
        playing.until(f"{NOTICE}?.startsWith('{file.name} ')")
    click(playing, "camera")
    playing.until(f"{NOTICE}?.startsWith('The camera cannot be used: ')")
    before = playing.value("collected.length")
    click(playing, "sample")
    playing.until(f"collected.length >= {before} + 3")
    assert playing.value(NOTICE) is None


@pytest.mark.thorough
def test_a_file_that_the_host_lost_is_named_and_loaded_when_it_is_back(browser, host):
    tab = opened(browser, host, "?provider=wasm")
    host.lost.add("bundle/decoder.onnx")
    click(tab, "sample")
    assert "bundle/decoder.onnx" in tab.until(NOTICE)
    assert tab.value("document.getElementById('status').textContent") == "stopped"
    host.lost.clear()
    click(tab, "sample")
    tab.until("document.getElementById('picture').dataset.number > 1")
    tab.close()


def test_a_hidden_tab_waits_and_says_so_when_it_is_shown(playing):
    playing.until("!video.paused")
    playing.value(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true}),"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    playing.until("video.paused && !busy")
    before = playing.value("collected.length")
    playing.value("new Promise(done => setTimeout(done, 300))")
    assert playing.value("collected.length") == before
    playing.value("delete document.hidden, document.dispatchEvent(new Event('visibilitychange'))")
    assert "background" in playing.until(NOTICE)
    playing.until(f"collected.length > {before}")


def test_the_tab_key_reaches_every_control_and_each_has_a_name(playing):
    playing.value("document.querySelector('details').open = true, document.activeElement.blur()")
    controls = "[...document.querySelectorAll('button, input, summary')].filter(one => !one.hidden)"
    count, reached = playing.value(f"{controls}.length"), set()
    for _ in range(count):
        for kind in ("rawKeyDown", "keyUp"):
            playing("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        reached.add(playing.value(f"{controls}.indexOf(document.activeElement)"))
    assert reached == set(range(count))
    nodes = playing("Accessibility.getFullAXTree")["nodes"]
    kinds = {"button", "slider", "checkbox", "image", "DisclosureTriangle"}
    found = [node for node in nodes if node.get("role", {}).get("value") in kinds]
    assert len(found) >= count
    assert [node for node in found if not node["name"].get("value")] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, host, width):
    tab = opened(browser, host, "?provider=wasm", width=width)
    tab.value("say('lost', 'x'.repeat(200)), at('title').textContent = 'y'.repeat(200), 0")
    assert tab.value("document.documentElement.scrollWidth") <= width
    wide = tab.value(
        "[...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect()"
        ".right > innerWidth + 0.5).map(one => one.outerHTML)"
    )
    assert wide == []
    tab.close()


@pytest.mark.thorough
def test_a_huge_video_and_one_on_end_are_cut_to_the_models_shape(browser, host, tmp_path):
    for name, (height, width), size in (
        ("huge.mp4", (2176, 3840), (722, 1280)),
        ("on-end.mp4", (320, 180), (102, 180)),
    ):
        with open_sink(str(tmp_path / name), (), np.zeros((0, 3), np.uint8), Fraction(5)) as write:
            for number in range(3):
                write("", np.full((height, width, 3), 60 * number, np.uint8))
        tab = opened(browser, host, "?provider=wasm")
        choose(tab, tmp_path / name)
        tab.until("document.getElementById('picture').dataset.number > 1")
        assert tuple(tab.value("[view.canvas.height, view.canvas.width]")) == size
        assert tab.value(NOTICE) is None
        tab.close()


@pytest.mark.thorough
def test_webgpu_keeps_its_state_on_the_gpu_and_survives_the_loss_of_it(gpu_browser, gpu_host, demo):
    tab = opened(gpu_browser, gpu_host, "?provider=webgpu")
    tab.value(COLLECT)
    click(tab, "sample")
    tab.until("collected.length >= 3", SHADERS_S)
    frames = collected(tab, SIZE)
    said = tab.value("document.getElementById('provider').textContent")
    assert "WebGPU" in said
    assert "software" in said
    assert "on the GPU" in tab.value("document.getElementById('latency').title")
    check_masks(frames, demo("fp32"))
    gpu_browser.crash_gpu()
    assert "lost" in tab.until(NOTICE)
    tab.until("document.getElementById('status').textContent == 'first frame'")
    gpu_browser.crash_gpu()
    tab.until("document.getElementById('provider').textContent.startsWith('WASM')")
    count = tab.value("collected.length")
    tab.until(f"collected.length >= {count} + 3")
    after = collected(tab, SIZE)[count:]
    assert after[0][0] == 1
    check_masks(after, demo("fp32"))
    tab.close()


@pytest.mark.thorough
def test_a_software_adapter_is_not_taken_unasked_and_a_camera_is_live(gpu_browser, gpu_host):
    tab = opened(gpu_browser, gpu_host)
    assert "software" in tab.value("document.getElementById('hint').textContent")
    click(tab, "camera")
    tab.until("document.getElementById('picture').dataset.number > 3")
    assert tab.value("document.getElementById('speed').textContent") == "live"
    assert tab.value("document.getElementById('place').hidden")
    tab.value("video.srcObject.getTracks()[0].dispatchEvent(new Event('ended'))")
    assert "disconnected" in tab.value(NOTICE)
    click(tab, "sample")
    tab.until("document.getElementById('speed').textContent.endsWith('%')")
    tab.close()
