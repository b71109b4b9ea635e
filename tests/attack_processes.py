"""Kills every verb at random moments, builds in parallel, and ends recordings by signals.

    python tests/attack_processes.py KILLS ROUNDS [NAME ...]

After each kill (-9) what the verb writes is whole, as it was or not there, and none of its
processes stays. After the last one the same command works, and nothing half written is left beside
its output or among temporary files. Then, ROUNDS times, five builds and a quantization write to one
bundle at once, and two recordings of a camera are ended by SIGTERM and SIGKILL. Ends with 1 if
anything was lost, left over or broken. Verbs by name, `parallel` and `recording` are tried alone.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/doubles")]

import av  # noqa: E402
from network_camera import network_camera  # noqa: E402

from mrcfa.bundle import Bundle  # noqa: E402
from mrcfa.data.datasets import labelled_videos  # noqa: E402
from mrcfa.training.checkpoints import read_facts  # noqa: E402
from mrcfa.training.runs import LAST  # noqa: E402

MRCFA = [sys.executable, str(ROOT / "cli.py")]
SIZE, FRAMES, STEPS = "96x160", 12, 6
SECONDS = 600
"""Longest time of one command, in seconds."""
VIDEOS = 12
"""So many that several processes draw them."""
MOST = 3
"""Commands for each kill: some end before it."""
ENDS_S = 10
"""Longest time until the children of a killed process have ended, in seconds."""
faults: list[str] = []


def main(kills: int, rounds: int, names: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": f"{folder}/cache"}
        work("sample", "data", "--videos", "1", "--train", "1", *f"--size {SIZE}".split(), *CLIP)
        work("export", "--demo", "--size", SIZE, "-o", "bundle")
        attacks: list[tuple[str, Callable[[], object]]] = []
        attacks += [(verb.name, lambda verb=verb: kill(verb, kills)) for verb in VERBS]
        attacks += [(each.__name__, each) for each in (parallel, recording) for _ in range(rounds)]
        for name, attack in attacks:
            if not names or name in names:
                attack()
        os.chdir("/")
    print(f"{len(faults)} faults")
    return int(bool(faults))


@dataclass(frozen=True)
class Verb:
    words: str
    check: Callable[[], object]
    """Raises if what was written is neither whole nor as it was nor away."""
    before: Callable[[], object] = lambda: None
    """Makes room for the next one."""

    @property
    def name(self) -> str:
        return self.words.split()[0]

    def command(self) -> list[str]:
        goes_on = self.name == "train" and Path("run", LAST).exists()
        return [*self.words.split(), *["--resume"][: int(goes_on)]]


def kill(verb: Verb, kills: int) -> None:
    """At moments spread over the time that the whole command takes."""
    home = Path.cwd()
    Path(verb.name, "tmp").mkdir(parents=True)
    os.chdir(verb.name)
    shutil.copytree("../bundle", "bundle")
    Path("data").symlink_to("../data")
    os.environ["TMPDIR"] = str(Path("tmp").resolve())
    began = time.monotonic()
    work(*verb.command())
    seconds = time.monotonic() - began
    chance, died, begun = random.Random(verb.name), 0, 0
    while died < kills and begun < MOST * kills:
        verb.before()
        began, begun = time.monotonic(), begun + 1
        process = start(*verb.command())
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, seconds))
            seconds = min(seconds, time.monotonic() - began)  # the machine may have been busy
        code = process.poll()
        process.kill()
        process.wait()
        died += code is None
        told(verb.name, nothing, [code] if code else [])
        told(verb.name, orphans, process.pid)
        told(verb.name, verb.check)
    verb.before()
    work(*verb.command())
    told(verb.name, verb.check)
    left = [str(path) for path in Path().rglob("*") if "partial" in path.name]
    left += [str(path) for path in Path("tmp").iterdir() if "torchinductor" not in path.name]
    told(verb.name, nothing, left)
    os.chdir(home)
    del os.environ["TMPDIR"]
    print(f"{verb.name}: {died} of {begun} killed while they worked", flush=True)


def parallel() -> None:
    """Five builds and a quantization."""
    shutil.rmtree("shared", ignore_errors=True)
    shutil.copytree("bundle", "shared")
    at_once = [start("build", "shared", "--sm", sm) for sm in ("75", "80", "86", "89", "120")]
    at_once += [start("quantize", "shared", "--data", "data", *CLIP)]
    codes = [process.wait(SECONDS) for process in at_once]
    told("parallel", nothing, [code for code in codes if code])
    told("parallel", whole_bundle, "shared")
    manifest = Bundle.open("shared").manifest
    told("parallel", nothing, [5 - len(manifest.engines)] if len(manifest.engines) != 5 else [])
    told("parallel", nothing, {"fp32", "fp16", "int8"} - manifest.variants.keys())
    print(f"parallel: {len(manifest.engines)} engines, {', '.join(manifest.variants)}", flush=True)


def recording() -> None:
    """Record a camera that never ends."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        with network_camera(10**9) as url:
            process = start("run", "bundle", url, "-o", "camera.mp4", "--force")
            until = time.monotonic() + SECONDS
            while not any(fragments(path) > 1 for path in Path().glob("camera.*.partial.mp4")):
                assert time.monotonic() < until, "the recording has not begun"
                time.sleep(0.1)
            process.send_signal(end)
            code = process.wait(SECONDS)
        killed = end is signal.SIGKILL
        (path,) = Path().glob("camera.*.partial.mp4" if killed else "camera.mp4")
        told("recording", nothing, [] if code == (-end if killed else 130) else [code])
        told("recording", plays, path)
        print(f"recording: ended by {end.name}, {plays(path)} frames play", flush=True)
        path.unlink()


def start(*words: str) -> "subprocess.Popen[bytes]":
    with Path(os.environ["XDG_CACHE_HOME"] + ".log").open("ab") as log:
        return subprocess.Popen(
            [*MRCFA, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def work(*words: str) -> None:
    if code := start(*words).wait(SECONDS):
        said = Path(os.environ["XDG_CACHE_HOME"] + ".log").read_text()[-2000:]
        told(words[0], nothing, [f"{' '.join(words)} ends with {code}: {said}"])


def told(where: str, check: Callable[..., object], *given: object) -> None:
    try:
        check(*given)
    except Exception as error:
        faults.append(f"{where}: {error!r}")
        print("FAULT", faults[-1], file=sys.stderr, flush=True)


def nothing(left: Collection[object]) -> None:
    assert not left, left


def orphans(session: int) -> None:
    """Fails if anything of a session still runs."""
    until = time.monotonic() + ENDS_S
    while alive := [each for each in Path("/proc").glob("[0-9]*/stat") if runs_in(each, session)]:
        assert time.monotonic() < until, f"{alive} go on"
        time.sleep(0.1)


def runs_in(stat: Path, session: int) -> bool:
    """State and session are the first and the fourth field after a name in brackets."""
    try:
        state, _, _, found = stat.read_text().rpartition(") ")[2].split()[:4]
    except OSError:  # it has ended
        return False
    return state != "Z" and int(found) == session


def whole_bundle(path: str) -> None:
    if Path(path).exists():
        bundle = Bundle.open(path)
        for name in bundle.manifest.files:
            bundle.file(name)


def plays(path: Path) -> int:
    with av.open(str(path)) as file:
        frames = sum(1 for _ in file.decode(video=0))
    assert frames
    return frames


def fragments(video: Path) -> int:
    """Begun ones; all but the last are whole."""
    return video.read_bytes().count(b"moof")


def whole_video() -> None:
    if Path("masks.mp4").exists():
        assert plays(Path("masks.mp4")) == FRAMES


def whole_run() -> None:
    if Path("run", LAST).exists():
        facts = read_facts(Path("run", LAST))
        assert facts is not None
        assert Path("run", f"state.{facts.iteration}.safetensors").exists()


def anew_if_finished() -> None:
    if Path("run", LAST).exists() and read_facts(Path("run", LAST)).iteration == STEPS:
        shutil.rmtree("run")


def whole_sample() -> None:
    if Path("new").exists():
        assert len(labelled_videos(Path("new"), "val", 0).clips) == VIDEOS
        assert plays(Path("new/street.mp4")) == FRAMES


def whole_report() -> None:
    for path in (Path("report.html"), Path("rows.jsonl")):
        assert not path.exists() or path.read_text().rstrip().endswith(("</html>", "}"))


CLIP = ("--frames", str(FRAMES))
TRAINING = f"--backbone b0 --size {SIZE} --crop {SIZE} --batch 1 --warmup 1 --workers 1"
VERBS = [
    Verb(f"export --demo --size {SIZE} -o out --force", lambda: whole_bundle("out")),
    Verb("build bundle --sm 86", lambda: whole_bundle("bundle")),
    Verb(f"quantize bundle --data data --frames {FRAMES} --force", lambda: whole_bundle("bundle")),
    Verb("eval bundle data", lambda: None),
    Verb(
        f"train data -o run {TRAINING} --iterations {STEPS} --save-every 1 --validate-every 3",
        whole_run,
        anew_if_finished,
    ),
    Verb("run bundle data/street.mp4 -o masks.mp4 --force", whole_video),
    Verb(
        f"sample new --videos {VIDEOS} --size {SIZE} --frames {FRAMES}",
        whole_sample,
        lambda: shutil.rmtree("new", ignore_errors=True),
    ),
    Verb(
        "bench bundle --backends onnxruntime:cpu --frames 3 --warmup 10 --drift 0 "
        "--report report.html --json rows.jsonl",
        whole_report,
    ),
]

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
