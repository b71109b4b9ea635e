"""The GStreamer element in pipelines, against Python's runtime."""

import shutil
import subprocess

import av
import numpy as np
import pytest
from cpp_library import run
from gstreamer_rig import GSTREAMER, pictures
from naming import names

from mrcfa import Stream
from mrcfa.model.input_format import InputFormat, Layout, Matrix, Range
from mrcfa.video.overlay import Renderer
from mrcfa.video.style import Style

FRAMES, SEEK_AFTER, SEEK_TO = 30, 14, 5
RGB = "video/x-raw,format=RGB,width=160,height=96,framerate=25/1"


@pytest.fixture(scope="module")
def player(gst, built):
    """The program that plays a pipeline, and writes its frames and their masks."""
    return built("gst-player", lambda path: gst.program(path, "player"))


def masks_of(path, frames, resets=()):
    stream = Stream(path, "onnxruntime:cpu")
    masks = []
    for number, frame in enumerate(frames):
        if number in resets:
            stream.reset()
        masks.append(stream(np.ascontiguousarray(frame)))
    return np.stack(masks)


def tapped(gst, source, element, folder, height=96, width=160, channels=1):
    """Frames that entered the element, (T, h, w, 3), and frames that left it."""
    gst.play(
        f"{source} ! tee name=tap ! queue ! filesink location={folder}/in "
        f"tap. ! queue ! {element} ! filesink location={folder}/out"
    )
    seen = pictures(folder / "in", height, width, 3)
    return seen, pictures(folder / "out", height, width, channels)


def test_masks_of_a_test_source_are_those_of_a_stream(gst, bundle, tmp_path):
    source = f"videotestsrc num-buffers={FRAMES} pattern=ball ! {RGB}"
    element = f"mrcfa bundle={bundle('b0')} backend=onnxruntime:cpu output=mask"
    frames, masks = tapped(gst, source, element, tmp_path)
    assert len(frames) == FRAMES
    assert len(np.unique(masks)) > 3
    assert np.array_equal(masks, masks_of(bundle("b0"), frames))


def test_a_decoded_video_has_the_masks_of_mrcfa_run_also_after_a_seek(
    player, gst, bundle, clip, command, tmp_path
):
    frames = clip(FRAMES, 96, 160)
    with av.open(tmp_path / "video.mov", "w") as container:
        track = container.add_stream("png", rate=25)
        track.width, track.height, track.pix_fmt = 160, 96, "rgb24"
        for frame in frames:
            container.mux(track.encode(av.VideoFrame.from_ndarray(frame)))
        container.mux(track.encode())
    pipeline = (
        f"filesrc location={tmp_path}/video.mov ! decodebin ! videoconvert ! "
        f"mrcfa bundle={bundle('b0')} backend=onnxruntime:cpu output=meta ! "
        "appsink name=sink sync=false max-buffers=2"
    )
    words = (pipeline, tmp_path / "frames", tmp_path / "masks", FRAMES)
    run(player, *words, SEEK_AFTER, SEEK_TO * 40_000_000, env=gst.environment)

    played = [*range(SEEK_AFTER), *range(SEEK_TO, SEEK_TO + FRAMES - SEEK_AFTER)]
    seen = pictures(tmp_path / "frames", 96, 160, 3)
    assert np.array_equal(seen, frames[played])
    expected = []
    for start, count in ((0, SEEK_AFTER), (SEEK_TO / 25, FRAMES - SEEK_AFTER)):
        words = ("--start", start, "--backend", "onnxruntime:cpu", "--as", "mask", "-o", "-")
        code, masks, said = command("run", bundle("b0"), "video.mov", *words)
        assert code == 0, said
        expected.append(np.frombuffer(masks, np.uint8).reshape(-1, 96, 160)[:count])
    assert np.array_equal(pictures(tmp_path / "masks", 96, 160), np.concatenate(expected))


def nv12_frames(file, height, width):
    """NV12 of a filesink, (T, h·3/2, w), whose rows are multiples of 4 bytes."""
    stride = -(-width // 4) * 4
    return np.fromfile(file, np.uint8).reshape(-1, height * 3 // 2, stride)[..., :width]


@pytest.mark.parametrize(
    "size", [(96, 160), pytest.param((108, 190), marks=pytest.mark.thorough)], ids=str
)
def test_nv12_has_the_masks_of_a_stream_and_the_overlay_of_mrcfa_run(size, gst, bundle, tmp_path):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",), frame=size)
    height, width = size
    source = "videotestsrc num-buffers=12 pattern=smpte ! video/x-raw,framerate=25/1"
    options = f"bundle={path} backend=onnxruntime:cpu"
    frames, shown = [], {}
    for output in ("mask", "overlay"):
        gst.play(
            f"{source} ! tee name=tap ! queue ! filesink location={tmp_path}/in "
            f"tap. ! queue ! mrcfa {options} output={output} ! filesink location={tmp_path}/out"
        )
        frames = nv12_frames(tmp_path / "in", height, width)
        read = pictures if output == "mask" else nv12_frames
        shown[output] = read(tmp_path / "out", height, width)
    masks = masks_of(path, frames)
    assert len(frames) == 12
    assert np.array_equal(shown["mask"], masks)
    stream = Stream(path, "onnxruntime:cpu")
    renderer = Renderer(Style.OVERLAY, stream.classes, stream.palette, legend=False, form=form)
    painted = [renderer(*pair).pixels for pair in zip(frames, masks, strict=True)]
    assert np.array_equal(shown["overlay"], painted)


@pytest.mark.parametrize(
    ("caps", "code", "things"),
    [
        ("format=RGB", 1, ("RGB", "NV12", "videoconvert")),
        ("format=RGB ! videoconvert", 0, ()),
        ("format=NV12,colorimetry=bt709", 0, ("bt709", "bt601", "--colour")),
    ],
)
def test_frames_in_another_format_are_told_what_converts_them(caps, code, things, gst, bundle):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",))
    size = "video/x-raw,width=160,height=96"
    pipeline = f"videotestsrc num-buffers=2 ! {size},{caps} ! mrcfa bundle={path} ! fakesink"
    done = gst.launch(pipeline, GST_DEBUG="mrcfa:2")  # gst-launch may end before it prints them
    assert (done.returncode != 0) == bool(code), done.stderr
    assert names(done.stderr, *things)
    assert ("warn_of" in done.stderr or "check_colours" in done.stderr) == bool(things)


def test_frames_of_an_odd_width_keep_their_rows(gst, tailored, tmp_path):
    source = "videotestsrc num-buffers=4 ! video/x-raw,format=RGB"
    element = f"mrcfa bundle={tailored} output=mask"
    frames, masks = tapped(gst, source, element, tmp_path, 107, 189)
    assert np.array_equal(masks, masks_of(tailored, frames))


@pytest.mark.parametrize(
    ("alpha", "named"), [pytest.param(0.5, 0, marks=pytest.mark.thorough), (0.3, 2)]
)
def test_the_overlay_is_what_mrcfa_run_paints_but_for_its_legend(
    alpha, named, gst, bundle, tmp_path
):
    stream = Stream(bundle("b0"), "onnxruntime:cpu")
    source = f"videotestsrc num-buffers=5 pattern=smpte ! {RGB}"
    options = f"bundle={bundle('b0')} backend=onnxruntime:cpu alpha={alpha}"
    frames, plain = tapped(gst, source, f"mrcfa {options}", tmp_path, channels=3)
    masks = masks_of(bundle("b0"), frames)
    shown = [stream.classes[index] for index in np.unique(masks)[:named]]
    renderer = Renderer(Style.OVERLAY, stream.classes, stream.palette, alpha, shown, legend=False)
    if named:
        options += f" classes={','.join(shown)}"
        frames, plain = tapped(gst, source, f"mrcfa {options}", tmp_path, channels=3)
        label = Renderer(Style.MASK, stream.classes, stream.palette, only=shown)
        _, labels = tapped(gst, source, f"mrcfa {options} output=mask", tmp_path)
        assert np.array_equal(labels, label(frames, masks))
        assert 255 in labels
    painted = np.stack([renderer(*pair) for pair in zip(frames, masks, strict=True)])
    assert np.array_equal(plain, painted)
    assert not np.array_equal(plain, frames)


def test_videoscale_brings_frames_of_any_size_to_the_bundles_also_midway(gst, bundle, tmp_path):
    sizes = ((320, 240), (64, 48))
    sources = [
        f"videotestsrc num-buffers=6 ! video/x-raw,format=RGB,width={width},height={height} ! c."
        for width, height in sizes
    ]
    frames, masks = tapped(
        gst,
        f"{' '.join(sources)} concat name=c ! videoscale ! capsfilter",
        f"mrcfa bundle={bundle('b0')} backend=onnxruntime:cpu output=mask",
        tmp_path,
    )
    assert len(frames) == 12
    assert np.array_equal(masks, masks_of(bundle("b0"), frames, resets=(6,)))


@pytest.mark.parametrize(
    ("words", "things"),
    [
        ("", ("bundle=FOLDER", "mrcfa export")),
        ("bundle=/usr", ("/usr", "manifest.json")),
        ("bundle={} backend=npu", ("'npu'", "auto", "tensorrt", "onnxruntime")),
    ],
)
def test_what_cannot_run_is_an_element_error_with_the_librarys_sentence(words, things, gst, bundle):
    done = gst.launch(f"videotestsrc ! mrcfa {words.format(bundle('b0'))} ! fakesink")
    assert done.returncode != 0
    (error,) = (line for line in done.stderr.splitlines() if "GstMrcfa:mrcfa0: " in line)
    assert names(error.partition("GstMrcfa:mrcfa0: ")[2], *things)


@pytest.mark.parametrize(
    "output",
    ["meta", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("overlay", "mask"))],
)
def test_no_object_outlives_a_pipeline(output, gst, bundle):
    done = gst.launch(
        f"videotestsrc num-buffers=20 ! {RGB} ! tee name=t ! queue ! mrcfa bundle={bundle('b0')} "
        f"output={output} ! queue ! fakesink t. ! queue ! fakesink",
        GST_TRACERS="leaks",
        GST_DEBUG="GST_TRACER:7",
    )
    assert done.returncode == 0, done.stderr
    assert "object-alive, type-name=(string)%s" in done.stderr  # how it would be told
    assert "object-alive, type-name=(string)G" not in done.stderr


def test_gst_inspect_tells_every_property(gst):
    told = gst.call("gst-inspect-1.0", "mrcfa").stdout
    names = ("bundle", "backend", "device", "output", "alpha", "classes", "reset-on-discont")
    for name in (*names, "qos", "stats"):
        assert f"\n  {name} " in told, told
    assert "GstMrcfaMeta" in told


def test_an_installed_plugin_finds_its_library(build, gst, tmp_path):
    run("cmake", "--install", build, "--prefix", tmp_path)
    (plugin,) = tmp_path.glob("lib*/**/gstreamer-1.0/libgstmrcfa.so")
    told = gst.call("gst-inspect-1.0", plugin, GST_PLUGIN_PATH=str(plugin.parent)).stdout
    assert "MRCFA" in told
    assert (tmp_path / "include/gstmrcfameta.h").is_file()


def test_the_example_for_python_reads_masks(gst, bundle):
    python = shutil.which("python3", path="/usr/bin")
    words = "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst"
    if python is None or subprocess.run([python, "-c", words], capture_output=True).returncode:
        pytest.skip("GStreamer in Python: not run (no gi with Gst in /usr/bin/python3)")
    source = f"videotestsrc num-buffers=3 ! {RGB}"
    done = gst.call(python, GSTREAMER / "example/masks.py", bundle("b0"), source)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("15360 pixels") == 3


def test_a_mask_follows_its_frame_to_another_format_and_not_to_another_size(
    player, gst, bundle, tmp_path
):
    for caps, masks in (("format=I420", 2), ("width=80,height=48", 0)):
        pipeline = (
            f"videotestsrc ! {RGB} ! mrcfa bundle={bundle('b0')} output=meta ! "
            f"videoconvertscale ! video/x-raw,{caps} ! appsink name=sink"
        )
        run(player, pipeline, tmp_path / "frames", tmp_path / "masks", 2, env=gst.environment)
        assert len(pictures(tmp_path / "masks", 96, 160)) == masks


@pytest.mark.parametrize(
    "words", [pytest.param(("states", 5), marks=pytest.mark.thorough), ("frames",)]
)
def test_in_a_harness(words, gst, bundle, tmp_path):
    """Resets, states, sizes and refusals; late, padded and shared frames, metas, latency."""
    name, *more = words
    run(gst.program(tmp_path / name, name), bundle("b0"), *more, env=gst.environment)
