"""The machine's temperature, from Linux."""

from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/sys/class")
_PLAUSIBLE_C = range(1, 150)  # sensors that are off report 0, -40 or 255


@dataclass(frozen=True)
class Temperature:
    """A temperature and the sensor that reports it."""

    celsius: float
    sensor: str


def temperature(system: Path = SYSTEM) -> Temperature | None:
    """The hottest thermal zone, or the hottest sensor if there are no zones; None without both."""
    zones = [(path, path.parent / "type") for path in system.glob("thermal/thermal_zone*/temp")]
    sensors = [(path, path.parent / "name") for path in system.glob("hwmon/hwmon*/temp*_input")]
    for places in (zones, sensors):
        found = [heat for heat in (_read(*place) for place in places) if heat is not None]
        if found:
            return max(found, key=lambda heat: heat.celsius)
    return None


def _read(value: Path, name: Path) -> Temperature | None:
    try:
        celsius = int(value.read_text()) / 1000
        sensor = name.read_text().strip()
    except (OSError, ValueError):  # a sensor may fail while its device sleeps
        return None
    return Temperature(celsius, sensor) if round(celsius) in _PLAUSIBLE_C else None
