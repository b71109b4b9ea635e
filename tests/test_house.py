"""The rules of the house: who imports whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STAGES = {"export", "engines", "benchmarks"}


def imported(path):
    """The top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("load", "import_module"):
            yield from (
                ast.literal_eval(each).partition(".")[0]
                for each in node.args[:1]
                if isinstance(each, ast.Constant)
            )


@pytest.mark.parametrize("package", ["mrcfa", *sorted(STAGES)])
def test_stages_import_mrcfa_and_never_each_other(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 5
    for path in files:
        assert not set(imported(path)) & ({*STAGES, "cli"} - {package}), path
