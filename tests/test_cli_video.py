"""`mrcfa run`, `eval` and `sample` as they are typed: exit codes, files and words."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from naming import names
from network_camera import network_camera
from PIL import Image
from small_vspw import write_vspw

from mrcfa import Bundle, Stream
from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range
from mrcfa.selftest.expected import Expected
from mrcfa.video.sources import open_source

SIZE = (96, 160)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "sample"
    write_vspw(folder, videos=1, frames=18, size=(96, 160))
    return folder


@pytest.fixture
def threshold(monkeypatch):
    """Instead of a model: `car` where a pixel is bright, `sky` elsewhere."""

    class Threshold:
        classes, palette = ("sky", "car"), np.array([(70, 130, 180), (0, 0, 142)], np.uint8)
        backend, overlaps_frames, size, input = "a threshold", False, (4, 6), RGB

        def __init__(self, bundle, backend="auto", **options):
            opened.options.append(options)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __call__(self, frame):
            return (frame.mean(-1) > 128).astype(np.uint8)

        def reset(self):
            pass

    opened = SimpleNamespace(manifest=SimpleNamespace(streams=1), options=[])
    monkeypatch.setattr("mrcfa.video.session.Bundle.open", lambda path: opened)
    monkeypatch.setattr("mrcfa.video.session.Stream", Threshold)
    return opened


def test_latency_is_said_of_cameras_and_not_of_recordings_which_wait(command, sample, bundle):
    with network_camera(4) as url:
        _, _, err = command("run", bundle("b0"), sample / "street.mp4", url, "-o", "out")
    recorded, live, *_ = err.splitlines()
    assert "latency" not in recorded
    assert re.search(r"\d dropped, latency p50 \d+ ms, p99 \d+ ms$", live)


def test_run_writes_a_video_like_its_input(command, sample, bundle):
    code, out, err = command("run", bundle("b0"), sample / "street.mp4", "-o", "masks.mp4")
    assert (code, out) == (0, b"")
    assert err.startswith("wrote masks.mp4: 18 frames\n")
    assert "onnxruntime" in err
    probes = []
    for path in (sample / "street.mp4", Path("masks.mp4")):
        with av.open(str(path)) as file:
            stream = file.streams.video[0]
            shown = sum(1 for _ in file.decode(stream))
            probes.append((stream.codec.name, stream.width, stream.height, stream.average_rate))
            probes[-1] += (shown,)
    assert probes == [("h264", 160, 96, 15, 18)] * 2


def test_a_bundle_of_nv12_is_run_without_rgb(command, sample, bundle, monkeypatch):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",))

    def refused(*_):
        raise AssertionError("RGB was made")

    for place in ("mrcfa.video.sinks.as_rgb", "mrcfa.stream.segmenter.as_rgb"):
        monkeypatch.setattr(place, refused)
    source = open_source(str(sample / "street.mp4"))
    source.form = form
    with Stream(path, "onnxruntime:cpu") as stream:
        masks = np.stack([stream(frame.image) for frame in source])
    words = ("run", path, sample / "street.mp4", "--backend", "onnxruntime:cpu")
    code, out, _ = command(*words, "-o", "-")
    assert (code, out) == (0, masks.tobytes())
    assert command(*words, "-o", "overlay.mp4", "--as", "side-by-side")[0] == 0
    with av.open("overlay.mp4") as file:
        shown = list(file.decode(video=0))
    assert len(shown) == len(masks) == 18
    assert (shown[0].width, shown[0].height, shown[0].colorspace) == (320, 96, 6)


def test_pictures_are_converted_for_a_bundle_of_nv12(command, sample, bundle):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",))
    folder = sample / "data" / "sample_0" / "origin"
    assert command("run", path, folder, "--end", 0.1, "-o", "masks")[0] == 0
    assert len(list(Path("masks").iterdir())) == 3
    assert command("eval", path, sample)[0] == 0
    expected = Expected.of(Bundle.open(path))
    with Stream(path, "onnxruntime:cpu") as stream:
        masks = np.stack([stream(frame) for frame in expected.frames])
    assert (masks[expected.compared] == expected.masks).mean() > 0.999


@pytest.mark.usefixtures("threshold")
class TestRun:
    def test_the_default_output_is_named_after_the_input(self, command, sample):
        assert command("run", "b", sample / "street.mp4")[0] == 0
        assert command("run", "b", sample / "data" / "sample_0" / "origin", "--end", 0.1)[0] == 0
        assert {path.name for path in Path.cwd().iterdir()} == {
            "street.mrcfa.mp4",
            "origin.mrcfa.mp4",
        }

    def test_images_become_indexed_pngs_of_the_same_names(self, command, sample):
        folder = sample / "data" / "sample_0" / "origin"
        assert command("run", "b", f"{folder}/*5.jpg", "-o", "masks")[0] == 0
        assert sorted(path.name for path in Path("masks").iterdir()) == [
            "00000005.png",
            "00000015.png",
        ]
        with Image.open("masks/00000005.png") as mask, Image.open(folder / "00000005.jpg") as image:
            expected = np.asarray(image).mean(-1) > 128
            np.testing.assert_array_equal(np.asarray(mask), expected)

    def test_grey_alpha_portrait_and_odd_images_of_mixed_sizes_become_one_video(self, command):
        Path("in").mkdir()
        for number, (mode, size) in enumerate(
            [("L", (161, 97)), ("RGBA", (96, 160)), ("LA", (47, 33)), ("P", (160, 96))]
        ):
            Image.new(mode, size).save(f"in/{number}.png")
        assert command("run", "b", "in", "-o", "out.mp4", "--as", "side-by-side")[0] == 0
        with av.open("out.mp4") as file:
            shapes = [frame.to_ndarray(format="rgb24").shape for frame in file.decode(video=0)]
        assert shapes == [(98, 322, 3)] * 4

    def test_a_pipe_is_answered_with_a_pipe(self, command, monkeypatch):
        frames = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), np.uint8)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(frames.tobytes())))
        code, out, err = command("run", "b", "-", "--raw", "4x6")
        assert (code, out) == (0, (frames.mean(-1) > 128).astype(np.uint8).tobytes())
        assert err.startswith("wrote -: 3 frames")

    def test_raw_frames_across_the_bundles_are_pointed_out(self, command, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(72))))
        code, out, err = command("run", "b", "-", "--raw", "6x4")
        assert (code, len(out)) == (0, 24)
        assert names(err.splitlines()[0], "--raw 6x4", "--raw 4x6")
        assert names(err, "1 frame")

    def test_an_image_is_answered_with_an_image(self, command, sample):
        image = sample / "data" / "sample_0" / "origin" / "00000005.jpg"
        assert command("run", "b", image)[0] == 0
        assert command("run", "b", image, "-o", "mask.png")[0] == 0
        for place in ("00000005.mrcfa.png", "mask.png"):
            with Image.open(place) as mask, Image.open(image) as shown:
                assert mask.mode == "P"
                np.testing.assert_array_equal(np.asarray(mask), np.asarray(shown).mean(-1) > 128)
        assert command("run", "b", image, "-o", "look.png", "--as", "overlay")[0] == 0
        with Image.open("look.png") as look, Image.open(image) as shown:
            assert (look.mode, look.size) == ("RGB", shown.size)

    def test_several_inputs_become_folders_of_pngs_or_npz(self, command, sample):
        video, images = sample / "street.mp4", sample / "data" / "sample_0" / "origin"
        assert command("run", "b", video, images, "-o", "masks/{}", "--end", 0.1)[0] == 0
        assert command("run", "b", video, images, "-o", "masks/{}.npz", "--end", 0.1)[0] == 0
        with np.load("masks/origin.npz") as saved:
            for path in Path("masks/origin").iterdir():
                with Image.open(path) as mask:
                    np.testing.assert_array_equal(np.asarray(mask), saved[path.stem])
        assert sorted(path.name for path in Path("masks").iterdir()) == [
            "origin",
            "origin.npz",
            "street",
            "street.npz",
        ]

    @pytest.mark.parametrize("place", ["out.mp4", "out.npz", "out"])
    def test_what_a_run_wrote_is_replaced_with_force_alone(self, command, sample, place):
        words = ("run", "b", sample / "street.mp4", "-o", place)
        assert command(*words, "--end", 0.2)[0] == 0
        before = {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")}
        code, _, err = command(*words)
        assert code == 2
        assert names(err, place, "--force")
        assert {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")} == before
        assert command(*words, "--end", 0.1, "--force")[0] == 0
        if place == "out":
            assert len(list(Path("out").iterdir())) == 2

    def test_options_of_a_stream_are_passed_on(self, command, sample, threshold):
        words = ("--precision", "fp16", "--threads", 2, "--device", 1, "-o", "a.npz")
        assert command("run", "b", sample / "street.mp4", "--end", 0.1, *words)[0] == 0
        (options,) = threshold.options
        told = {"precision": "fp16", "threads": 2, "device": 1}
        assert options == {**told, "convert_rgb": True}

    def test_the_legend_may_be_left_out(self, command, sample):
        image = sample / "data" / "sample_0" / "origin" / "00000005.jpg"
        words = ("run", "b", image, "--as", "color", "-o")
        assert command(*words, "with.png")[0] == 0
        assert command(*words, "without.png", "--no-legend")[0] == 0
        with Image.open("with.png") as wide, Image.open("without.png") as bare:
            assert bare.size == (160, 96)
            np.testing.assert_array_equal(np.asarray(wide)[:, :160], np.asarray(bare))

    def test_only_the_wanted_classes_are_shown(self, command, sample):
        words = ("run", "b", sample / "street.mp4", "-o", "cars.npz", "--classes", "car,")
        assert command(*words)[0] == 0
        with np.load("cars.npz") as saved:
            assert np.unique(saved["000000"]).tolist() == [1, 255]

    def test_a_truncated_video_is_processed_and_ends_with_exit_code_1(self, command, sample):
        whole = (sample / "street.mp4").read_bytes()
        Path("cut.mp4").write_bytes(whole[: len(whole) * 9 // 10])
        code, _, err = command("run", "b", "cut.mp4", "-o", "out.mp4")
        assert code == 1
        with av.open("out.mp4") as file:
            shown = sum(1 for _ in file.decode(video=0))
        assert 0 < shown < 18
        assert names(err, f"{18 - shown} of 18 frames", "cut.mp4")

    def test_several_inputs_share_a_session_and_a_folder(self, command, sample):
        video, images = sample / "street.mp4", sample / "data" / "sample_0" / "origin"
        Path("other").mkdir()
        whole = video.read_bytes()
        Path("other/street.mp4").write_bytes(whole[: len(whole) * 9 // 10])
        Path("empty.mp4").write_bytes(whole)
        words = ("run", "b", video, "other/street.mp4", images, "-o", "out", "--end", 1)
        code, _, err = command(*words)
        assert code == 0
        assert sorted(path.name for path in Path("out").iterdir()) == [
            "origin.mp4",
            "street-2.mp4",
            "street.mp4",
        ]
        *wrote, last = err.splitlines()
        assert wrote == [
            "wrote out/street.mp4: 15 frames",
            "wrote out/street-2.mp4: 15 frames",
            "wrote out/origin.mp4: 18 frames",
        ]
        assert names(last, "frames/s", "a threshold")

    def test_an_input_that_fails_leaves_the_others_alone_and_is_named(self, command, sample):
        Path("bad").mkdir()
        Path("bad/0.png").write_text("no image")
        code, _, err = command("run", "b", "bad", sample / "street.mp4", "-o", "out")
        assert code == 1
        assert [path.name for path in Path("out").iterdir()] == ["street.mp4"]
        assert err.startswith("wrote out/street.mp4: 18 frames\n")
        assert names(err.splitlines()[-1], "1 of 1 frame", "bad", "0.png")

    @pytest.mark.parametrize("sent", [["SIGTERM"], ["SIGHUP"], ["SIGQUIT"], ["SIGINT"] * 2])
    def test_a_run_that_is_told_to_end_leaves_a_video_that_plays(self, command, monkeypatch, sent):
        """Frames come through a pipe until the signals are sent; it stays open after that."""
        read, write = os.pipe()
        with os.fdopen(read, "rb", 0) as pipe, os.fdopen(write, "wb", 0) as frames:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
            ours = {name: signal.signal(signal.Signals[name], _unhandled) for name in sent}

            def feed():
                for _ in range(30):
                    frames.write(bytes(96 * 160 * 3))
                for name in sent:
                    os.kill(os.getpid(), signal.Signals[name])

            threading.Thread(target=feed, daemon=True).start()
            code, _, err = command("run", "b", "-", "--raw", "96x160", "-o", "out.mp4")
            for name, handler in ours.items():
                signal.signal(signal.Signals[name], handler)
        assert code == 130
        assert names(err, "out.mp4", "signal")
        with av.open("out.mp4") as file:
            assert sum(1 for _ in file.decode(video=0)) >= 20
        assert [path.name for path in Path.cwd().iterdir()] == ["out.mp4"]

    def test_a_run_that_is_told_to_end_before_its_first_frame_writes_nothing(
        self, command, monkeypatch
    ):
        read, write = os.pipe()
        with os.fdopen(read, "rb", 0) as pipe, os.fdopen(write, "wb", 0):

            def silent(size):
                os.kill(os.getpid(), signal.SIGTERM)
                return pipe.read(size)

            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read=silent)))
            ours = signal.signal(signal.SIGTERM, _unhandled)
            code, _, err = command("run", "b", "-", "--raw", "96x160", "-o", "out.mp4")
            signal.signal(signal.SIGTERM, ours)
        assert code == 130
        assert "complete" not in err
        assert not list(Path.cwd().iterdir())

    def test_masks_and_overlays_have_the_shape_of_their_input(self, command):
        with av.open("in.mp4", "w") as file:
            stream = file.add_stream("libx264", rate=15)
            stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
            stream.codec_context.sample_aspect_ratio = Fraction(2)
            frame = av.VideoFrame.from_ndarray(np.zeros((96, 160, 3), np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
        for style in ("mask", "overlay"):
            assert command("run", "b", "in.mp4", "-o", f"{style}.mp4", "--as", style)[0] == 0
            with av.open(f"{style}.mp4") as file:
                assert file.streams.video[0].sample_aspect_ratio == 2

    def test_a_full_disk_keeps_the_frames_and_ends_with_exit_code_1(self, command):
        Path("in").mkdir()
        noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
        Image.new("RGB", (8, 8)).save("in/0.png")
        Image.fromarray(noise).save("in/1.png")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))  # a mask of noise takes more
        try:
            code, _, err = command("run", "b", "in", "-o", "masks")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert code == 1
        assert names(err, "masks")
        assert [path.name for path in Path("masks").iterdir()] == ["0.png"]

    @pytest.mark.parametrize(
        ("words", "things"),
        [
            (["{video}", "{video}", "-o", "both.mp4"], ["2 inputs", "both.mp4"]),
            (["{video}", "-", "-", "--raw", "4x6", "-o", "new"], ["standard input"]),
            (["{video}", "nowhere.mp4", "-o", "new"], ["nowhere.mp4"]),
            (["{video}", "{video}"], ["2 inputs", "old.mp4"]),
            (["nowhere.mp4"], ["nowhere.mp4"]),
            (["junk.mp4"], ["junk.mp4"]),
            (["empty"], ["empty"]),
            (["{video}", "--start", "99"], ["{video}"]),
            (["{video}", "--classes", "cars"], ["cars", "car"]),
            (["{video}", "--as", "picture"], ["--as", "picture", "overlay", "mask"]),
            (["-", "--raw", "huge"], ["huge", "HxW"]),
            (["{video}", "-o", "junk.mp4/out.npz"], ["junk.mp4/out.npz"]),
            (["{video}", "-o", "{video}"], ["{video}", "-o"]),
            (["{video}", "-o", "mask.png"], ["mask.png", "-o"]),
        ],
    )
    def test_bad_input_is_one_sentence_and_changes_nothing(self, command, sample, words, things):
        Path("old.mp4").write_text("old")
        Path("junk.mp4").write_text("junk")
        Path("empty").mkdir()
        before = sorted(Path.cwd().rglob("*"))
        video = sample / "street.mp4"
        words, things = ([each.format(video=video) for each in given] for given in (words, things))
        code, out, err = command("run", "b", "-o", "old.mp4", "--force", *words)
        assert (code, out) == (2, b"")
        assert err.startswith("mrcfa: ")
        assert names(err, *things)
        assert err.count("\n") == 1
        assert sorted(Path.cwd().rglob("*")) == before
        assert Path("old.mp4").read_text() == "old"


@pytest.mark.parametrize(("verb", "other"), [("run", "street.mp4"), ("eval", "")])
def test_bundle_and_input_in_the_wrong_order_are_named_as_such(
    command, sample, bundle, verb, other
):
    code, _, err = command(verb, sample / other, bundle("b0"))
    assert code == 2
    assert names(err, f"mrcfa {verb} {bundle('b0')} {sample / other}")
    assert not list(Path.cwd().iterdir())


def test_no_message_shows_a_password(command):
    for words in (
        ("run", "b", "rtsp://me:secret@127.0.0.1:9/x?token=secret"),
        ("run", "b", "rtsp://me:secret@127.0.0.1:9/x", "--raw", "8x8"),
        ("inspect", "rtsp://me:secret@127.0.0.1:9/x"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, b"")
        assert names(err, "127.0.0.1")
        assert "secret" not in err


def test_the_name_of_a_file_cannot_write_to_the_terminal(command, bundle):
    Path("in").mkdir()
    Path("in/\x1b[2J.png").write_text("no image")
    for words in (("run", bundle("b0"), "in"), ("inspect", "in/\x1b[2J.png")):
        code, _, err = command(*words)
        assert code == 2
        assert "\x1b" not in err
        assert r"\x1b[2J.png" in err


def _unhandled(number, _):
    raise AssertionError(f"{signal.Signals(number).name} came through")


def test_a_terminal_that_lacks_a_character_shows_another_one(command, monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "latin-1"))
    monkeypatch.setattr("mrcfa.cli.app", lambda **_: print("✓ ✗ é 語"))
    assert command("doctor")[0] == 0
    assert shown.getvalue().decode("latin-1") == "+ x é ?\n"


def test_want_of_memory_is_a_sentence(command, monkeypatch):
    def hungry(**_):
        raise MemoryError

    monkeypatch.setattr("mrcfa.cli.app", hungry)
    code, _, err = command("run")
    assert code == 2
    assert names(err, "mrcfa", "memory")
    assert err.count("\n") == 1


def test_eval_prints_the_metrics_and_what_a_second_bundle_changes(command, sample, bundle):
    words = ("eval", bundle("b0"), sample, "--against", bundle("b0"), "--vspw-script", "--json")
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    first, second = answer["evaluations"]
    assert set(first["metrics"]) == {"mIoU", "WIoU", "pixel_accuracy", "mVC8", "mVC16"}
    assert first["frames"] == 18
    assert first == second
    assert set(answer["difference"].values()) == {0.0}
    assert not any(Path(".cache").rglob("*.npz"))


def test_one_video_is_one_video(command, sample, bundle):
    code, out, _ = command("eval", bundle("b0"), sample, "--limit", 1)
    assert code == 0
    assert names(out.decode().splitlines()[0], "1 video")


def test_eval_without_a_dataset_is_one_sentence(command, bundle):
    code, _, err = command("eval", bundle("b0"), "nowhere")
    assert code == 2
    assert names(err, "nowhere", "mrcfa sample nowhere")
    assert err.count("\n") == 1


def test_sample_says_what_it_wrote(command):
    code, out, _ = command("sample", "s", "--videos", 1, "--frames", 1, "--size", "64x96")
    assert code == 0
    assert names(out.decode(), "1 video", "s/street.mp4")
    assert Path("s/val.txt").is_file()
    assert json.loads(Path("s/labels.json").read_text())["names"][0] == "road"


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="not run: no /proc to look at processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_sample_leaves_no_processes_behind(tmp_path, number):
    words = [sys.executable, "-m", "mrcfa.cli", "sample", "s", "--videos", "99", "--size", "64x96"]
    run = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(tmp_path.rglob("*.png")) and time.monotonic() < deadline:
            time.sleep(0.05)
        run.send_signal(number)
        _, err = run.communicate(timeout=60)  # which ends when nobody can write to it any more
        assert b"Traceback" not in err
        while (left := _alive(run.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for pid in _alive(run.pid):
            os.kill(pid, signal.SIGKILL)
    assert not left
    if number == signal.SIGTERM:
        assert run.returncode == 130
        assert list(tmp_path.iterdir()) == []


def _alive(session):
    """The processes of a session, but not those that only wait to be reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal():
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == session and state != "Z":
                    found.append(int(entry.name))
    return found
