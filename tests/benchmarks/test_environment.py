import pytest

from benchmarks.environment import device_memory_used, environment

SMI = """#!/bin/sh
case "$1" in
  --query-gpu=memory.used) echo "1537 MiB" ;;
  *) echo "Quadro RTX 6000, 580.65.06, 1770 MHz, 2100 MHz, 7001 MHz, 260.00 W" ;;
esac
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """`tool(name, script)`: a program of that name on the path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(name, script):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)

    return write


def test_processor_threads_and_versions_are_recorded():
    found = environment(threads=2)
    assert found["threads"] == "2"
    assert {
        "date",
        "mrcfa",
        "processor",
        "torch",
        "onnxruntime",
        "system",
        "Python",
    } <= found.keys()


def test_clocks_power_and_driver_of_a_gpu_are_recorded(tool):
    tool("nvidia-smi", SMI)
    found = environment(threads=1)
    assert found["GPU name"] == "Quadro RTX 6000"
    assert found["GPU driver"] == "580.65.06"
    assert found["GPU SM clock"] == "1770 MHz"
    assert found["GPU power limit"] == "260.00 W"
    assert device_memory_used() == 1537 * 2**20


def test_a_jetsons_power_mode_is_recorded(tool):
    tool("nvpmodel", "#!/bin/sh\necho 'NV Power Mode: MAXN_SUPER'; echo 2\n")
    assert environment(threads=1)["power mode"] == "NV Power Mode: MAXN_SUPER 2"


def test_a_driver_tool_that_fails_is_as_none(tool):
    tool("nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n")
    assert device_memory_used() is None
    assert "GPU name" not in environment(threads=1)
