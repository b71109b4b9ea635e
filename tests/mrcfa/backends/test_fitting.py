"""The choice of an engine, a GPU and a backend, and what CUDA's errors mean: cases for both
languages. tests/engines/test_cpp_fitting.py asks C++."""

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_cases import CASES, CUDA_ERRORS
from naming import naming

from mrcfa.backends import Unfit
from mrcfa.backends.cuda_context import Failure
from mrcfa.backends.fitting import (
    Library,
    Machine,
    candidates,
    chosen_device,
    engine_title,
    first_loaded,
    first_opened,
    requested,
)
from mrcfa.backends.records import parts_of
from mrcfa.bundle.flavours import Flavour
from mrcfa.bundle.manifest import Engine
from mrcfa.errors import Damaged, MrcfaError
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.hardware import Gpu


class Policy:
    """The rules, put together as `open_backend` and `TensorRTBackend` do, with made-up facts."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.machine, self.asked = case["machine"], SimpleNamespace(**case["asked"])
        self.bundle, self.facts = Path(case["bundle"]), case["engines"]
        self.engines = [
            Engine(
                facts["flavour"],
                facts["tensorrt"],
                tuple(facts["compute_capabilities"]),
                facts["precision"],
                *("fp16", None, "encoder", "decoder"),
                version_compatible=facts["version_compatible"],
                gpu=facts["gpu"],
            )
            for facts in case["engines"]
        ]
        self.kind, self.which = parts_of(self.asked.backend)

    def order(self) -> list[str]:
        wanted = requested(self.engines, self.which, self.asked.precision, self.bundle)
        return [engine.name for engine in wanted]

    def run(self) -> tuple[str, str]:
        """The name of the backend that runs, and the notice."""
        if self.kind == "tensorrt":
            opened, notice = self.tensorrt()
            return opened.name, notice
        notices: list[str] = []

        def tensorrt() -> SimpleNamespace:
            opened, notice = self.tensorrt()
            notices.append(notice)
            return opened

        attempts = [*([tensorrt] if self.engines else []), self.onnxruntime]
        opened, notice = first_opened(
            attempts,
            self.bundle,
            lambda: len(self.machine["gpus"]),
            self.asked.strict,
        )
        return opened.name, "".join([*notices, notice])

    def tensorrt(self) -> tuple[SimpleNamespace, str]:
        wanted = requested(self.engines, self.which, self.asked.precision, self.bundle)
        cards = self.machine["gpus"]
        if not cards:
            raise Unfit("no GPU can be used here")
        device = chosen_device(self.asked.device, self.machine["current"], len(cards))
        gpu = Gpu(**cards[device])
        major, minor = map(int, self.machine["driver"].split("."))
        fitting = candidates(wanted, Machine(gpu, (major, minor), self.library), self.bundle)
        return first_loaded(fitting, partial(self.load, gpu))

    def library(self, flavour: Flavour) -> Library:
        facts = self.machine["library"]
        if flavour.value != facts["flavour"]:
            raise MissingExtra(f"{flavour.module} is not installed")
        return Library(facts["version"], facts["cuda"])

    def load(self, gpu: Gpu, engine: Engine) -> SimpleNamespace:
        facts = self.facts[self.engines.index(engine)]
        if facts["fails"]:
            raise Unfit(facts["fails"])
        if facts["damaged"]:
            raise Damaged(facts["damaged"])
        graphs = self.asked.cuda_graphs and self.machine["records_graphs"]
        return SimpleNamespace(name=engine_title(engine, gpu, graphs), on_gpu=True)

    def onnxruntime(self) -> SimpleNamespace:
        place = self.machine["onnxruntime"]
        if place is None:
            raise MissingExtra("there is no ONNX Runtime")
        return SimpleNamespace(name=f"onnxruntime ({place})", on_gpu=place == "CUDA")


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_what_runs_and_what_is_told_is_as_in_the_case(case):
    policy = Policy(case)
    if "order" in case:
        assert policy.order() == case["order"]
    if "error" in case:
        with pytest.raises(MrcfaError, match=naming(*case["error"]["names"])) as raised:
            policy.run()
        assert type(raised.value).__name__ == case["error"]["kind"]
        return
    name, notice = policy.run()
    assert name == case["runs"]
    assert bool(notice) is ("notice" in case), notice
    assert re.search(naming(*case.get("notice", [])), notice)


@pytest.mark.parametrize("case", CUDA_ERRORS, ids=[case["name"] for case in CUDA_ERRORS])
def test_an_error_of_cuda_means_what_the_case_says(case):
    assert Failure.of(case["name"]).name.lower() == case["means"]


def test_the_names_of_the_cases_and_of_the_rules_are_cudas():
    driver = pytest.importorskip("cuda.bindings.driver", reason="not run: no cuda-python")
    codes = {name.removeprefix("CUDA_ERROR_"): int(code) for name, code in _members(driver)}
    assert all(codes[case["name"]] == case["code"] for case in CUDA_ERRORS)
    cases = {case["name"] for case in CUDA_ERRORS}
    assert cases >= {code for failure in Failure for code in failure.value}


def _members(driver: Any) -> list[tuple[str, Any]]:
    return [(result.name, result.value) for result in driver.CUresult]
