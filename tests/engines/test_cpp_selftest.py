"""`mrcfa selftest` with the real C++ program."""

from naming import names

from mrcfa.bundle import Bundle
from mrcfa.selftest.cpp import cpp_line
from mrcfa.selftest.expected import Expected
from mrcfa.selftest.line import Outcome


def test_the_cpp_programs_masks_are_held_to_the_references(build, bundle):
    line = cpp_line(Bundle.open(bundle("b0")), build / "mrcfa-segment")
    assert line.outcome is Outcome.WORKS, line
    assert "onnxruntime (CPU, fp32)" in line.words
    assert line.facts["value"] >= line.facts["threshold"] == 0.999


def test_a_cpp_program_that_writes_nothing_or_ends_badly_fails(bundle, tmp_path):
    tool = tmp_path / "mrcfa-segment"
    for script, things in (
        ("echo runs on onnxruntime", (len("runs on onnxruntime\n"), "bytes")),
        ("echo no such bundle >&2; exit 2", ("2", "no such bundle")),
    ):
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        line = cpp_line(Bundle.open(bundle("b0")), tool)
        assert line.outcome is Outcome.FAILS
        assert names(line.words, *things)


def test_a_cpp_program_that_cannot_record_graphs_fails(bundle, tmp_path):
    opened, tool = Bundle.open(bundle("b0")), tmp_path / "mrcfa-segment"
    title = "tensorrt (rtx fp16 sm75, Quadro RTX 6000, without CUDA graphs)"
    size = Expected.of(opened).frames.size // 3
    tool.write_text(
        f'#!/bin/sh\n[ "$2" = --info ] && echo "runs on {title}" || head -c {size} /dev/zero\n'
    )
    tool.chmod(0o755)
    line = cpp_line(opened, tool)
    assert line.outcome is Outcome.FAILS
    assert names(line.words, title, "recorded")
