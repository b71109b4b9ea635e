"""A real tritonserver on loopback, and clients in processes of their own."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mrcfa.bundle import Bundle
from mrcfa.serving.repository import Platform, ServingOptions, write_repository

ROOT = Path(__file__).parents[3]
START_S = 60


def environment():
    """Its Python backend is isolated and finds packages by the `python3` that is first in PATH."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }


class Server:
    """One port, the same after a restart."""

    def __init__(self, repository, folder):
        self.log = folder / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._shared = f"mrcfa-test-{os.getpid()}-{self.port}-"
        self.address = f"triton://127.0.0.1:{self.port}/mrcfa"
        self._command = [
            str(ROOT / "examples" / "tritonserver-on-cpu.sh"),
            f"--model-repository={repository}",
            f"--backend-config=python,shm-region-prefix-name={self._shared}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self.port}",
            "--allow-http=false",
            "--allow-metrics=false",
            "--disable-auto-complete-config",
        ]

    def start(self):
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment(), start_new_session=True
            )
        until = time.monotonic() + START_S
        while b"Started GRPCInferenceService" not in self.log.read_bytes():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        return self

    def kill(self):
        """At once, with the processes of its models, and what they shared."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for region in Path("/dev/shm").glob(f"{self._shared}*"):
            region.unlink()

    def memory(self):
        """Bytes of its own in all its processes."""
        total = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                group = int(path.read_text().rpartition(")")[2].split()[2])
                if group == self._process.pid:
                    lines = (path.parent / "status").read_text().splitlines()
                    kept = next(line for line in lines if line.startswith("RssAnon"))
                    total += int(kept.split()[1]) * 1024
            except (OSError, StopIteration):
                continue  # it has just ended
        return total


@pytest.fixture
def run_server(tmp_path):
    """`run_server(repository)`: a server that runs until the test ends."""
    if not (ROOT / "build" / "triton").is_dir():
        pytest.skip("Triton: not run (make build/triton brings the server, for Linux on x86-64)")
    servers = []

    def started(repository):
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        servers.append(Server(repository, folder))
        return servers[-1].start()

    yield started
    for server in servers:
        server.kill()


@pytest.fixture
def serve(run_server, bundle, tmp_path):
    """`serve(sequences=4)`: a running server of the b0 bundle, in the Python form."""

    def started(path=None, **options):
        opened = Bundle.open(path or bundle("b0"))
        # No stream is idle for that long, however slow the machine.
        told = ServingOptions(Platform.PYTHON, threads=1, **{"idle_s": 300, **options})
        write_repository([opened], tmp_path / "models", told)
        return run_server(tmp_path / "models")

    return started


@pytest.fixture
def clients():
    """`clients(address, seeds)`: a process with a stream for each seed; see client.py."""
    running = []

    def client(address, seeds):
        words = [sys.executable, str(Path(__file__).with_name("client.py")), address]
        running.append(
            subprocess.Popen(
                [*words, *map(str, seeds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "golden")},
            )
        )
        return running[-1]

    yield client
    for process in running:
        with process:
            process.kill()
