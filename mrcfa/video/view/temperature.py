"""How hot the machine is, as Linux tells it."""

from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/sys/class")
_PLAUSIBLE_C = range(1, 150)  # sensors that are off say 0, -40 or 255


@dataclass(frozen=True)
class Temperature:
    celsius: float
    sensor: str


def temperature(system: Path = SYSTEM) -> Temperature | None:
    """Of the hottest thermal zone, or where there is none of the hottest sensor; None elsewhere."""
    zones = [(path, path.parent / "type") for path in system.glob("thermal/thermal_zone*/temp")]
    sensors = [(path, path.parent / "name") for path in system.glob("hwmon/hwmon*/temp*_input")]
    for places in (zones, sensors):
        found = [each for each in (_read(*place) for place in places) if each is not None]
        if found:
            return max(found, key=lambda each: each.celsius)
    return None


def _read(value: Path, name: Path) -> Temperature | None:
    try:
        celsius = int(value.read_text()) / 1000
        sensor = name.read_text().strip()
    except (OSError, ValueError):  # a sensor may refuse while its device sleeps
        return None
    return Temperature(celsius, sensor) if round(celsius) in _PLAUSIBLE_C else None
