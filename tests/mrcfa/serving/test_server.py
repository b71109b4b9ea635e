"""Streams against a real tritonserver, whose Python backend keeps a `Stream` for each of them."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from naming import naming
from PIL import Image

from mrcfa import Stream
from mrcfa.backends.served import identity
from mrcfa.bundle import Bundle
from mrcfa.errors import Mismatch, NotFound, RuntimeFailed
from mrcfa.serving.repository import ServingOptions, write_repository

triton = pytest.importorskip("tritonclient.grpc", reason="Triton: not run (no tritonclient)")


def hashes(bundle, video):
    with Stream(bundle, threads=1) as stream:
        return [crc32(stream(frame)) for frame in video]


def ask(client, first, last):
    client.stdin.write(f"{first} {last}\n")
    client.stdin.flush()


def answers(client, count):
    lines = [client.stdout.readline().split() for _ in range(count)]
    assert all(lines), client.stderr.read()
    return {(int(seed), int(frame)): int(mask) for seed, frame, mask in lines}


def test_eight_sequences_from_four_processes_are_local_streams_bit_for_bit(
    serve, clients, bundle, clip
):
    server, path = serve(), bundle("b0")
    processes = [clients(server.address, (2 * i, 2 * i + 1)) for i in range(4)]
    for process in processes:
        ask(process, 0, 40)
    found = {}
    for process in processes:
        found |= answers(process, 80)
    for seed in range(8):
        wanted = hashes(path, clip(40, 96, 160, seed))
        assert [found[seed, frame] for frame in range(40)] == wanted


@pytest.mark.thorough
def test_a_killed_server_that_comes_back_costs_every_stream_its_memory_and_each_says_where(
    serve, clients, bundle, clip
):
    server, path = serve(), bundle("b0")
    processes = [clients(server.address, (2 * i, 2 * i + 1)) for i in range(4)]
    found = {}
    for first, last, read in ((0, 1, 2), (1, 30, 16)):
        for process in processes:
            ask(process, first, last)
        for process in processes:
            found |= answers(process, read)
    server.kill()
    server.start()
    for process in processes:
        ask(process, 30, 40)  # there is something left to do, however fast it was
        found |= answers(process, 2 * 40 - 2 - 16)
        process.stdin.close()
        err = process.stderr.read()
        told = [line for line in err.splitlines() if line.startswith(f"mrcfa: {server.address} ")]
        said = [int(re.search(r"frame (\d+)", line)[1]) for line in told]
        assert len(said) == 2, err
        seeds = [int(seed) for seed in process.args[3:]]
        # Streams take turns: one that meets the dead server a frame later is the first of the two.
        restarts = dict(zip(seeds if said[0] == said[1] else seeds[::-1], said, strict=True))
        for seed in seeds:
            again, video = restarts[seed], clip(40, 96, 160, seed)
            wanted = hashes(path, video[:again]) + hashes(path, video[again:])
            assert [found[seed, frame] for frame in range(40)] == wanted


@pytest.mark.parametrize("slots", [3, pytest.param(4, marks=pytest.mark.thorough)])
def test_streams_of_a_batched_bundle_share_passes_and_are_lone_streams_bit_for_bit(
    slots, serve, bundle, clip
):
    server = serve(bundle("b0", streams=slots))
    videos = [clip(12, 96, 160, seed) for seed in range(slots)]

    def served(video):
        with Stream(server.address) as stream:
            return [crc32(stream(frame)) for frame in video]

    with ThreadPoolExecutor(slots) as threads:
        found = list(threads.map(served, videos))
    assert found == [hashes(bundle("b0"), video) for video in videos]
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    (counted,) = client.get_inference_statistics("mrcfa").model_stats
    assert counted.execution_count < counted.inference_count


def test_a_server_takes_the_graph_form_and_its_ensembles_are_lone_streams_bit_for_bit(
    run_server, bundle, clip, tmp_path
):
    """But for the ONNX Runtime backend, which the wheel lacks; see onnx_stand_in.py."""
    bundles = [Bundle.open(bundle("b0")), Bundle.open(bundle("b0", streams=3))]
    models = tmp_path / "models"
    names = write_repository(bundles, models, ServingOptions())
    for config in models.glob("*_*coder/config.pbtxt"):
        text = config.read_text(encoding="utf-8")
        config.write_text(text.replace('platform: "onnxruntime_onnx"', 'backend: "python"'))
        stand_in = Path(__file__).with_name("onnx_stand_in.py")
        shutil.copy(stand_in, config.parent / "1" / "model.py")
    server = run_server(models)
    videos = [clip(12, 96, 160, seed) for seed in range(3)]

    def served(name, video):
        with Stream(server.address.replace("/mrcfa", f"/{name}")) as stream:
            return [crc32(stream(frame)) for frame in video]

    wanted = [hashes(bundle("b0"), video) for video in videos]
    for name in names:
        with ThreadPoolExecutor(3) as threads:
            assert list(threads.map(partial(served, name), videos)) == wanted


@pytest.mark.thorough
def test_run_and_bench_take_a_server_and_tell_its_time_from_the_networks(
    serve, bundle, clip, command, tmp_path
):
    server = serve(idle_s=300)
    for number, frame in enumerate(clip(4, 96, 160)):
        Image.fromarray(frame).save(tmp_path / f"{number}.png")
    code, _, err = command("run", server.address, tmp_path / "*.png", "-o", "masks.npz")
    assert code == 0, err
    told = ["--frames", 3, "--warmup", 9, "--drift", 0, "--peer", "none", "--json", "rows.json"]
    code, out, err = command("bench", bundle("b0"), "--backends", server.address, *told)
    assert code == 0, err
    assert "network and client" in out.decode()
    lines = [json.loads(line) for line in (tmp_path / "rows.json").read_text().splitlines()]
    (row,) = (line for line in lines if line["kind"] == "row")
    assert (row["row"], row["verdict"]) == (server.address, "passed")
    frames = [line for line in lines if line["kind"] == "frame"]
    assert len(frames) == 3
    for frame in frames:
        assert 0 < frame["server_ms"] <= frame["ms"]
        assert frame["server_ms"] + frame["network_ms"] == pytest.approx(frame["ms"])


@pytest.mark.thorough
def test_sequences_that_nobody_ends_leave_nothing_behind(serve, clip):
    server = serve(sequences=4, idle_s=0.05)
    frame = clip(1, 96, 160)[0]

    def drop(count):
        streams = [Stream(server.address) for _ in range(count)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda stream: stream(frame), streams))

    kept = [server.memory()]
    for _ in range(6):
        drop(40)
        kept.append(server.memory())
    # Allocators settle at their own pace; 40 streams that stayed would add 26 MB every time.
    assert min(np.diff(kept)) < 4e6, kept


def test_what_is_wrong_is_a_sentence_and_other_streams_go_on(serve, bundle, clip):
    other = bundle("b1", output="logits")
    server = serve(sequences=2, idle_s=30)
    video = clip(12, 96, 160)
    wanted = hashes(bundle("b0"), video)
    with Stream(server.address) as steady:
        found = [crc32(steady(frame)) for frame in video[:3]]

        with pytest.raises(NotFound, match=naming(f"127.0.0.1:{server.port}", "other", "mrcfa")):
            Stream(server.address.replace("/mrcfa", "/other"))
        found += [crc32(steady(frame)) for frame in video[3:5]]

        other = bundle("b1", output="logits")
        bundles = [Bundle.open(path) for path in (bundle("b0"), other)]
        things = (*map(identity, bundles), "vspw b0 96×160", other)
        with pytest.raises(Mismatch, match=naming(server.address, *things)):
            Stream(other, server.address)
        found += [crc32(steady(frame)) for frame in video[5:6]]

        with Stream(server.address) as second:
            second(video[0])
            third = Stream(f"{server.address}?patience=0.5")
            things = ("0.5 s", "2 sequences", "--sequences", "--instances")
            with pytest.raises(RuntimeFailed, match=naming(server.address, *things)):
                third(video[0])
            found += [crc32(steady(frame)) for frame in video[6:8]]

        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        with pytest.raises(triton.InferenceServerException, match=r"shape .*'image'"):
            infer(client, np.zeros((1, 100, 160, 3), np.uint8), 7, start=True)
        found += [crc32(steady(frame)) for frame in video[8:9]]

        # Two clients with one id: the second START empties the memory, and the first one hears it.
        infer(client, video[None, 0], 7, start=True, frame=0)
        infer(client, video[None, 1], 7, frame=1)
        again = infer(client, video[None, 0], 7, start=True, frame=0)
        assert crc32(again) == wanted[0]
        things = ("sequence 7", "frame 1", "frame 2", "START")
        with pytest.raises(triton.InferenceServerException, match=naming(*things)):
            infer(client, video[None, 2], 7, frame=2)
        told = [line for line in server.log.read_text().splitlines() if "mrcfa: " in line]
        assert any(re.search(naming("sequence 7", "frame 2"), line) for line in told), told

        found += [crc32(steady(frame)) for frame in video[9:]]
    assert found == wanted


def infer(client, frames, sequence, start=False, **parameters):
    given = triton.InferInput("image", list(frames.shape), "UINT8")
    given.set_data_from_numpy(frames)
    options = {"sequence_id": sequence, "sequence_start": start, "parameters": parameters}
    return client.infer("mrcfa", [given], **options).as_numpy("mask")[0]


def test_frames_pass_without_shared_memory_and_in_any_size(serve, bundle, clip):
    server = serve()
    frames = clip(3, 120, 200)
    with (
        Stream(bundle("b0"), threads=1) as local,
        Stream(server.address) as shared,
        Stream(f"{server.address}?shared_memory=no") as sent,
    ):
        assert (sent.classes, sent.config) == (local.classes, local.config)
        np.testing.assert_array_equal(sent.palette, local.palette)
        for frame in frames:
            mask = local(frame)
            np.testing.assert_array_equal(shared(frame), mask)
            np.testing.assert_array_equal(sent(frame), mask)
        sent.reset()
        local.reset()
        np.testing.assert_array_equal(sent(frames[2]), local(frames[2]))
