"""The hottest sensor of a machine, from files as Linux has them."""

import pytest

from mrcfa.video.view.temperature import Temperature, temperature


@pytest.fixture
def sensors(tmp_path):
    def write(folder, name, value, label):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{value}\n")
        (place / ("type" if "thermal" in folder else "name")).write_text(f"{label}\n")

    return write


def test_the_hottest_zone_is_told_and_those_that_are_off_are_not(sensors, tmp_path):
    sensors("thermal/thermal_zone0", "temp", 41500, "cpu-thermal")
    sensors("thermal/thermal_zone1", "temp", 58250, "gpu-thermal")
    sensors("thermal/thermal_zone2", "temp", 255000, "off")
    sensors("thermal/thermal_zone3", "temp", "", "mute")
    sensors("hwmon/hwmon0", "temp1_input", 70000, "nvme")
    assert temperature(tmp_path) == Temperature(58.25, "gpu-thermal")


def test_without_zones_the_sensors_tell(sensors, tmp_path):
    sensors("thermal/thermal_zone0", "temp", -40000, "off")
    sensors("hwmon/hwmon0", "temp1_input", 33000, "nvme")
    sensors("hwmon/hwmon1", "temp1_input", 47000, "k10temp")
    assert temperature(tmp_path) == Temperature(47.0, "k10temp")


def test_a_machine_without_sensors_has_no_temperature(tmp_path):
    assert temperature(tmp_path) is None
