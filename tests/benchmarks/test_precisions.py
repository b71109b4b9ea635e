"""Precisions side by side, of a benchmark that ran and of variants that were quantized."""

import json
from dataclasses import replace

import pytest

from mrcfa.benchmarks.precisions import COLUMNS, remarks
from mrcfa.benchmarks.report import report
from mrcfa.benchmarks.table import cells, notes
from mrcfa.bundle.manifest import Engine, PlanCost, Quantization

FOUND = Quantization(
    method="percentile",
    data="street",
    frames=64,
    measure="mIoU",
    loss=0.25,
    allowed_loss=0.5,
    blocks=("fusion", "maa/8"),
    fp16=("base",),
    sensitivity={"fusion": 0.1, "maa/8": 0.2, "base": 0.9},
    curve=((1, 0.1), (2, 0.25), (3, 0.9)),
    shares={"encoder": 0.71, "weights": 0.98, "decoder": 0.8},
)


@pytest.fixture
def eight_bits(benched):
    """The same benchmark, as if the FP16 variant were INT8 as well, with an engine."""
    manifest = benched.bundle.manifest
    variant = replace(manifest.variants["fp16"], precision="int8", quantization=FOUND)
    costs = {part: PlanCost(9, 1_500_000, 2_000_000, 3_000_000) for part in ("encoder", "decoder")}
    engines = tuple(
        Engine("rtx", "1.7", sms, "int8", "int8", None, "e", "d", costs=costs)
        for sms in ((75,), (86, 89))
    )
    variants = {**manifest.variants, "int8": variant}
    changed = replace(manifest, variants=variants, engines=engines)
    slow = next(row for row in benched.rows if row.name == "onnxruntime:cpu fp16")
    contender = replace(slow.contender, name="onnxruntime:cpu int8", precision="int8")
    return replace(
        benched,
        bundle=replace(benched.bundle, manifest=changed),
        rows=(*benched.rows, replace(slow, contender=contender)),
        metrics={"fp32": {"mIoU": 0.75, "mVC8": 0.9, "mVC16": float("nan")}},
    )


def test_every_precision_has_a_row_and_what_was_not_measured_is_left_open(benched):
    rows = {row.name: row for row in benched.precisions()}
    assert list(rows) == ["fp32", "fp16"]
    assert rows["fp32"].agreement > rows["fp16"].agreement - 1e-9 > 0.99
    assert rows["fp16"].file_bytes < 0.6 * rows["fp32"].file_bytes
    assert rows["fp16"].cells()[COLUMNS.index("mIoU")] == "–"
    assert rows["fp16"].cells()[COLUMNS.index("MB written")] == "–"


def test_a_row_has_metrics_the_engine_that_compares_and_the_share_in_8_bits(eight_bits):
    rows = {
        row.name: dict(zip(COLUMNS, row.cells(), strict=True)) for row in eight_bits.precisions()
    }
    assert (rows["fp32"]["mIoU"], rows["fp32"]["mVC8"], rows["fp32"]["mVC16"]) == (
        *("75.00", "90.00"),
        "–",
    )
    assert rows["int8"]["engine"] == "rtx int8 sm86+sm89"
    assert (rows["int8"]["MB written"], rows["int8"]["MB activations"]) == ("3.0", "6.0")
    assert rows["int8"]["in 8 bits"] == "71%"
    (remark,) = remarks(eight_bits.precisions())
    assert "2 of 3 blocks in 8 bits" in remark
    assert "left in FP16: base" in remark


def test_an_8_bit_row_on_a_cpu_says_that_it_is_slower(eight_bits):
    row = eight_bits.rows[-1]
    slower = eight_bits.slowdown(row).value
    assert slower > 1
    assert cells(eight_bits, row)[0] == f"{row.name}, {slower:.1f} times as slow as fp32"
    assert any("8-bit variants are for GPUs" in note for note in notes(eight_bits))
    assert eight_bits.slowdown(eight_bits.rows[0]) is None


def test_the_report_draws_loss_against_blocks(eight_bits):
    page = report(eight_bits)
    assert "Loss of accuracy in 8 bits: int8" in page
    assert "blocks in 8 bits, of 3" in page


def test_precisions_are_lines_of_json(eight_bits):
    lines = [json.loads(line) for line in eight_bits.to_json_lines().splitlines()]
    found = {line["name"]: line for line in lines if line["kind"] == "precision"}
    assert found["fp32"]["metrics"] == {"mIoU": 0.75, "mVC8": 0.9, "mVC16": None}
    assert found["int8"]["quantization"]["blocks"] == ["fusion", "maa/8"]
