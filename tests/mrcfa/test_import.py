"""`import mrcfa` must stay light: numpy alone, and clear words for what is missing."""

import re
import subprocess
import sys

from naming import naming

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
HEAVY = ("torch", "onnx", "onnxruntime", "tensorrt", "tensorrt_rtx", "cuda", "safetensors", "PIL")


def python(code: str, blocked: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    script = f"BLOCKED = {blocked!r}\n{BLOCKER}\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_import_needs_numpy_alone():
    blocked = (*HEAVY, "typer", "rich", "click", "av", "matplotlib", "onnxscript", "onnxsim")
    answer = python("import mrcfa; print(mrcfa.preset('vspw', 'b1').classes)", blocked)
    assert answer.stdout == "124\n", answer.stderr


def test_neither_import_nor_help_loads_torch():
    code = f"""
from mrcfa import cli
from typer.testing import CliRunner
assert CliRunner().invoke(cli.app, ["--help"]).exit_code == 0
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    answer = python(code)
    assert answer.stdout == "[]\n", answer.stderr


def test_a_name_that_needs_torch_says_how_to_install_it():
    answer = python("import mrcfa; mrcfa.MRCFA", ("torch",))
    assert answer.stderr.splitlines()[-1].startswith("mrcfa.machine.extras.MissingExtra: ")
    assert re.search(naming("torch", 'pip install ".[export]"'), answer.stderr.splitlines()[-1])
