"""`mrcfa run --view` as it is typed: what is refused before anything starts, what is written."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession, WSMsgType
from naming import names
from PIL import Image

from mrcfa.video.view.address import listen


@pytest.fixture
def frames(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(6):
        Image.fromarray(np.full((96, 160, 3), 40 * number, np.uint8)).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("place", ["http://localhost", "99999", "a:b", ""])
def test_a_bad_place_is_refused_before_anything_starts(command, place):
    code, out, err = command("run", "no-bundle", "no-input", f"--view={place}")
    assert (code, out) == (2, b"")
    assert names(err, "--view", repr(place), "8080")
    assert err.count("\n") == 1


def test_a_port_in_use_is_refused_before_anything_starts(command):
    with closing(listen("0")) as listener:
        port = listener.socket.getsockname()[1]
        code, out, err = command("run", "no-bundle", "no-input", "--view", port)
    assert (code, out) == (2, b"")
    assert names(err, f"--view {port}", "127.0.0.1", port)
    assert err.count("\n") == 1


def test_a_missing_package_is_named_with_its_extra(command, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("mrcfa.video.view.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    code, _, err = command("run", "no-bundle", "no-input", "--view", "0")
    assert code == 2
    assert names(err, "aiohttp", 'pip install ".[view]"')


@pytest.mark.parametrize("what", ["bundle", "input", "class"])
def test_what_is_wrong_with_the_rest_is_told_as_ever(what, command, bundle, frames):
    words = {
        "bundle": ("run", "no-bundle", frames),
        "input": ("run", bundle("b0"), "no-input"),
        "class": ("run", bundle("b0"), frames, "--classes", "persn"),
    }
    code, out, err = command(*words[what], "--view", "0")
    assert (code, out) == (2, b"")
    assert err.startswith("mrcfa: ")
    assert err.count("\n") == 1


def test_with_a_view_nothing_is_written_unless_asked_for(command, bundle, frames):
    code, out, err = command("run", bundle("b0"), frames, "--view", "0")
    assert (code, out) == (0, b"")
    first, second, _ = err.splitlines()
    assert re.fullmatch(r"view: http://127\.0\.0\.1:\d+/", first)
    assert second == "showed frames: 6 frames"
    assert [path.name for path in Path.cwd().iterdir()] == ["frames"]
    code, out, err = command("run", bundle("b0"), frames, "--view", "0", "-o", "masks")
    assert (code, out) == (0, b"")
    assert "wrote masks: 6 frames" in err
    assert len(list(Path("masks").iterdir())) == 6


def test_a_run_is_seen_by_a_page_and_ends_with_ctrl_c(bundle, tmp_path):
    """Start the command as a process that reads a pipe, so that it waits for the test."""
    command = [sys.executable, "-m", "mrcfa.cli", "run", str(bundle("b0")), "-", "--raw", "96x160"]
    run = subprocess.Popen(
        [*command, "--view", "0.0.0.0:0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    try:
        url = run.stderr.readline().decode().removeprefix("view: ").strip()
        port, token = re.fullmatch(r"http://\S+:(\d+)/\?token=(\S+)", url).groups()

        async def look():
            address = f"http://127.0.0.1:{port}/stream"
            async with ClientSession() as session:
                async with session.get(address, params={"token": "guess"}) as refused:
                    assert refused.status == 403
                async with session.ws_connect(f"{address}?token={token}", max_msg_size=0) as page:
                    greeting = json.loads(await page.receive_str())
                    assert greeting["inputs"] == ["frames"]
                    assert len(greeting["classes"]) == 124
                    await page.send_str("0")
                    run.stdin.write(bytes(96 * 160 * 3))
                    run.stdin.flush()
                    while (message := await page.receive()).type is not WSMsgType.BINARY:
                        assert message.type is WSMsgType.TEXT
                    assert json.loads(message.data.partition(b"\n")[0])["number"] == 1
                    run.send_signal(signal.SIGINT)
                    while not json.loads(await page.receive_str())["ended"]:
                        pass

        asyncio.run(asyncio.wait_for(look(), 60))
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert (run.returncode, out) == (130, b"")
    assert names(err.decode().splitlines()[-1], "signal")
    assert list(tmp_path.iterdir()) == []
