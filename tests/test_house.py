"""The rules of the house: one installed name, and rooms that import one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = (
    ("errors", "bounds"),
    ("console",),
    ("machine",),
    ("model",),
    ("data",),
    ("bundle",),
    ("backends",),
    ("stream",),
    ("video", "training", "serving", "selftest"),
    ("web",),
    ("export", "engines", "benchmarks"),
    ("cli",),
)
"""Rooms of `mrcfa`, lowest first; those of one floor do not know each other."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def modules():
    """Every module by its installed name; the links to the folders at the top are followed."""
    package = ROOT / "mrcfa"
    links = (package / name for name in ("export", "engines", "benchmarks"))
    files = [*package.rglob("*.py"), *(file for link in links for file in link.glob("**/*.py"))]
    return {tuple(file.relative_to(ROOT).with_suffix("").parts): file for file in set(files)}


def imported(path):
    """Dotted names that a module imports, here or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_of(path):
    """The rooms of `mrcfa` that a module imports from."""
    names = (name.split(".") for name in imported(path))
    return {name[1] for name in names if name[0] == "mrcfa" and name[1:2] and name[1] in FLOOR}


def test_every_room_has_a_floor():
    found = {name[1] for name in modules() if name[1] != "__init__"}
    assert found == FLOOR.keys()


@pytest.mark.parametrize("room", FLOOR)
def test_a_room_imports_from_lower_floors_alone(room):
    files = {name: file for name, file in modules().items() if name[1] == room}
    assert files
    for name, file in files.items():
        higher = {other for other in rooms_of(file) - {room} if FLOOR[other] >= FLOOR[room]}
        assert not higher, ".".join(name)


@pytest.mark.parametrize("name", ["export", "engines", "benchmarks", "cli"])
def test_folders_at_the_top_are_imported_under_the_packages_name(name):
    for file in [*modules().values(), *ROOT.glob("tests/**/*.py")]:
        assert name not in {found.split(".")[0] for found in imported(file)}, file
