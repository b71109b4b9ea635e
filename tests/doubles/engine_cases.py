"""Cases of tests/golden that Python and C++ answer alike: engines and a machine, and CUDA's errors.

An engine of golden/engines.json is a name, or a record with `name`, and `tensorrt` (the version
that built it), `version_compatible`, `gpu` (the one that it was built on), `fails` (why it does not
load) or `damaged`. Facts that a case leaves out are those of `_MACHINE` and `_ASKED`. Its answers
are the `order` of engines that were asked for, what `runs`, and the things that the `notice` and
the `error` name. A case without a notice expects silence.
"""

import json
from pathlib import Path
from typing import Any

Case = dict[str, Any]

_GOLDEN = Path(__file__).parents[1] / "golden"
_MACHINE = {
    "gpus": ["Quadro RTX 6000 sm75"],
    "current": None,
    "driver": "13.0",
    "library": "rtx 1.7.1.116",
    "cuda": None,
    "onnxruntime": "CPU",
    "records_graphs": True,
}
_ASKED = {"backend": "auto", "precision": None, "device": None, "strict": False}
CUDA_ERRORS: list[Case] = json.loads((_GOLDEN / "cuda_errors.json").read_text())
"""Errors of CUDA by the driver's name and number, and what each of them `means`."""


def _complete(case: Case) -> Case:
    machine = {**_MACHINE, **case.get("machine", {})}
    flavour, version = machine.pop("library").split()
    cards = [card.rpartition(" sm") for card in machine.pop("gpus")]
    machine["gpus"] = [{"name": name, "sm": int(sm)} for name, _, sm in cards]
    machine["library"] = {"flavour": flavour, "version": version, "cuda": machine.pop("cuda")}
    asked = {**_ASKED, "cuda_graphs": True, **case.get("asked", {})}
    engines = [_engine(engine, version) for engine in case["engines"]]
    return {"bundle": "bundles/b1", **case, "machine": machine, "asked": asked, "engines": engines}


def _engine(given: Any, version: str) -> Case:
    facts = {"name": given} if isinstance(given, str) else dict(given)
    flavour, precision, targets = facts["name"].split()
    return {
        "flavour": flavour,
        "precision": precision,
        "compute_capabilities": [int(sm.removeprefix("sm")) for sm in targets.split("+")],
        "tensorrt": version,
        "version_compatible": False,
        "gpu": None,
        "fails": "",
        "damaged": "",
        **facts,
    }


CASES: list[Case] = [_complete(case) for case in json.loads((_GOLDEN / "engines.json").read_text())]
