"""The choice of an engine, a GPU and a backend in C++, and what CUDA's errors mean: the cases that
tests/mrcfa/backends/test_fitting.py asks Python."""

import json
import subprocess
from pathlib import Path
from typing import Any

from engine_cases import CASES, CUDA_ERRORS
from naming import names


def answers(build: Path, cases: list[dict[str, Any]]) -> list[Any]:
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    done = subprocess.run([build / "mrcfa-fitting"], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_runs_and_what_is_told_is_as_in_the_cases(build):
    for case, answer in zip(CASES, answers(build, CASES), strict=True):
        about = (case["what"], answer)
        assert answer["order"] == case.get("order", answer["order"]), about
        assert answer["runs"] == case.get("runs", ""), about
        for part, things in (
            ("notice", case.get("notice")),
            ("error", case.get("error", {}).get("names")),
        ):
            assert bool(answer[part]) is (things is not None), about
            assert names(answer[part], *(things or [])), about
        if "error" in case:  # the only kind that C++ tells apart
            assert answer["unfit"] is (case["error"]["kind"] == "Unfit"), about


def test_an_error_of_cuda_means_what_the_case_says(build):
    assert answers(build, CUDA_ERRORS) == [case["means"] for case in CUDA_ERRORS]
