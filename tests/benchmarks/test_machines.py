"""The pages' tables are those of the reports in benchmarks/results."""

import json
from pathlib import Path

import pytest
from naming import naming

from mrcfa.benchmarks.machines import TABLES, benches, selftests, speed, updated
from mrcfa.benchmarks.result import Outcome
from mrcfa.benchmarks.table import cells, shown
from mrcfa.errors import Damaged

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ("docs/benchmarks.md", "README.md")


@pytest.fixture
def reports(benched, tmp_path):
    """A folder with the report of one benchmark."""
    (tmp_path / "here.jsonl").write_text(benched.to_json_lines())
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_reports_as_they_are(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert updated(text, RESULTS) == text


def test_every_table_is_in_a_page():
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    for word in TABLES:
        assert text.count(f"<!-- {word} -->\n") == text.count(f"<!-- end of {word} -->\n") == 1


def test_reports_name_no_place_of_their_machine():
    for path in RESULTS.iterdir():
        assert str(ROOT) not in path.read_text(encoding="utf-8")
        assert '"/' not in path.read_text(encoding="utf-8"), path


def test_rows_of_a_report_are_those_that_bench_printed(benched, reports):
    text = benches(reports)
    for row in shown(benched):
        assert f"| {' | '.join(cells(benched, row))} |" in text
    for row in benched.rows:
        assert (f"{row.name} ({row.reason})" in text) == (row.outcome is Outcome.NOT_RUN)
    assert "frames of 96×160" in text
    assert benched.environment["date"] in text


def test_a_gpu_names_its_section_with_driver_clocks_and_power_mode(reports):
    first, *rest = (reports / "here.jsonl").read_text().splitlines()
    run = json.loads(first)
    run["environment"] |= {
        "GPU name": "Quadro RTX 6000",
        "GPU driver": "580.65.06",
        "GPU SM clock": "1770 MHz",
        "power mode": "MAXN",
    }
    (reports / "here.jsonl").write_text("\n".join([json.dumps(run), *rest]))
    text = benches(reports)
    assert text.startswith("### Quadro RTX 6000; ")
    for fact in ("GPU driver 580.65.06", "GPU SM clock 1770 MHz", "power mode MAXN"):
        assert fact in text


def test_a_selftest_is_a_row_with_what_ran_at_which_clocks(tmp_path):
    def line(check, outcome, **facts):
        return {"subject": "rtx fp16 sm75", "check": check, "outcome": outcome, "facts": facts}

    gpu = {"SM clock": "1770 MHz", "power": "187 W"}
    report = {
        "kind": "selftest",
        "complete": True,
        "verdict": "Passed: all. 24 checks passed, 0 failed, 2 were not run.",
        "lines": [
            line("masks", "works", value=0.9987, ms_per_frame=2.5, gpu=gpu),
            line("masks", "not run"),
            line("GPU at work", "works"),
        ],
        "environment": {
            "date": "2027-01-02",
            "processor": "any",
            "GPU": "Quadro RTX 6000 (sm_75)",
            "GPU driver": "580.65.06",
        },
        "bundle": {"name": "mrcfa-demo"},
    }
    (tmp_path / "quadro.json").write_text(json.dumps(report))
    assert selftests(tmp_path).splitlines()[2:] == [
        "| Quadro RTX 6000 (sm_75); any | mrcfa-demo "
        "| 24 checks passed, 0 failed, 2 were not run. GPU at work: works "
        "| rtx fp16 sm75: 99.87%, 2 ms a frame (SM clock 1770 MHz) "
        "| 2027-01-02, GPU driver 580.65.06 |"
    ]


def test_a_mark_around_an_old_table_gets_the_new_one(reports):
    page = "before\n<!-- benches -->\n| old |\n<!-- end of benches -->\nafter\n"
    text = updated(page, reports)
    assert text.startswith("before\n<!-- benches -->\n\n### ")
    assert text.endswith("\n\n<!-- end of benches -->\nafter\n")
    assert "| old |" not in text
    assert updated(text, reports) == text


def test_readmes_table_has_the_reports_figures(benched, reports):
    clip, stream = (
        next(row.speed.percentile_ms(50) for row in benched.rows if row.name == name)
        for name in ("eager-clip", "onnxruntime:cpu fp32")
    )
    lines = speed(reports).splitlines()
    assert "single-frame SegFormer-b0" in lines[0]
    assert f"| {clip:.0f} | 1× |" in lines[2]
    assert f"| **{stream:.0f}** | **" in lines[4]


def test_text_without_a_report_stays(tmp_path):
    page = "".join(f"<!-- {word} -->\nold\n<!-- end of {word} -->\n" for word in TABLES)
    assert updated(page, tmp_path) == page


def test_a_report_that_is_none_is_named(tmp_path):
    (tmp_path / "here.jsonl").write_text("not JSON")
    (tmp_path / "there.json").write_text('{"kind": "gpu-test"}')
    with pytest.raises(Damaged, match=naming(tmp_path / "here.jsonl")):
        benches(tmp_path)
    with pytest.raises(Damaged, match=naming(tmp_path / "there.json")):
        selftests(tmp_path)
