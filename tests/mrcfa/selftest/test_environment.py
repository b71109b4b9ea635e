import pytest

import mrcfa.selftest.environment
from mrcfa.selftest.environment import (
    device_memory_used,
    environment,
    gpu_clocks,
    gpu_facts,
    gpu_state,
)

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
    found = gpu_clocks()
    assert found["GPU name"] == "Quadro RTX 6000"
    assert found["GPU driver"] == "580.65.06"
    assert found["GPU SM clock"] == "1770 MHz"
    assert found["GPU power limit"] == "260.00 W"
    assert device_memory_used() == 1537 * 2**20


def test_what_an_idle_gpu_can_say_has_no_clocks_of_the_moment(tool):
    tool("nvidia-smi", '#!/bin/sh\necho "$1" | sed "s/.*=//"\n')
    assert gpu_facts() == {
        "GPU name": "name",
        "GPU driver": "driver_version",
        "GPU highest SM clock": "clocks.max.sm",
        "GPU power limit": "power.limit",
        "GPU memory": "memory.total",
    }
    tool("nvidia-smi", "#!/bin/sh\nexit 6\n")
    assert gpu_facts() == {}


def test_a_jetsons_power_mode_is_recorded(tool):
    tool("nvpmodel", "#!/bin/sh\necho 'NV Power Mode: MAXN_SUPER'; echo 2\n")
    assert environment(threads=1)["power mode"] == "NV Power Mode: MAXN_SUPER 2"


def test_a_driver_tool_that_fails_is_as_none(tool):
    tool("nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n")
    assert device_memory_used() is None
    assert gpu_clocks() == {}


def test_the_tool_is_asked_about_the_gpu_that_cuda_calls_its_first(tool, monkeypatch):
    tool("nvidia-smi", '#!/bin/sh\nfor word; do :; done\necho "$word"\n')
    monkeypatch.setattr(mrcfa.selftest.environment, "first_gpu_bus", lambda: "0000:3B:00.0")
    assert gpu_clocks()["GPU name"] == "--id=0000:3B:00.0"


def test_a_jetsons_clocks_are_the_kernels(tmp_path, monkeypatch):
    (tmp_path / "17000000.gpu").mkdir()
    (tmp_path / "17000000.gpu" / "cur_freq").write_text("612000000\n")
    (tmp_path / "17000000.gpu" / "max_freq").write_text("1020000000\n")
    monkeypatch.setattr(mrcfa.selftest.environment, "DEVFREQ", tmp_path)
    assert gpu_clocks() == {
        "17000000.gpu clock": "612 MHz",
        "17000000.gpu highest clock": "1020 MHz",
    }


def test_clocks_power_and_temperature_of_the_moment_are_told_where_somebody_knows(tool):
    tool("nvidia-smi", "#!/bin/sh\necho '1770 MHz, 7001 MHz, 187.20 W, 64'\n")
    assert gpu_state() == {
        "SM clock": "1770 MHz",
        "memory clock": "7001 MHz",
        "power": "187.20 W",
        "temperature": "64",
    }
    tool("nvidia-smi", "#!/bin/sh\nexit 6\n")
    assert gpu_state() == {}
