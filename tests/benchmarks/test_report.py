import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from mrcfa.benchmarks.report import report
from mrcfa.benchmarks.result import Outcome, Row
from mrcfa.benchmarks.table import notes
from mrcfa.bundle import Bundle
from mrcfa.bundle.checks import Check

VOID = {"meta", "img", "br", "link", "path", "use", "rect"}


class Outline(HTMLParser):
    """Notes what is not closed, and all that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attributes):
        self.fetched += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.fetched += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(benched):
    return report(benched)


def test_the_page_is_whole_and_fetches_nothing(page):
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert outline.fetched
    assert all(source.startswith(("data:image/", "#")) for source in outline.fetched)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_it_tells_every_row_check_and_bound(page, benched):
    for row in benched.rows:
        assert row.name in page
        for check in row.checks:
            assert check.name in page
    for words in ("no CUDA device", "Jetson AGX Thor", "40.1 FPS", "not measurements"):
        assert words in page


def test_rows_that_did_not_run_are_one_line_and_no_rows(benched, page):
    idle = [row for row in benched.rows if row.outcome is Outcome.NOT_RUN]
    (line,) = [sentence for sentence in notes(benched) if sentence.startswith("not run: ")]
    assert len(idle) >= 3
    for row in idle:
        assert row.name in line
        assert row.reason in line
        assert f"<th>{row.name}</th>" not in page
    assert line.count("no CUDA device") == 1


def test_ids_of_the_plots_do_not_clash(page):
    ids = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_plots_take_their_colours_from_the_page(page):
    assert "var(--s0)" in page
    assert not re.search(r"(fill|stroke): #0[0-9a-f]{5}", page)


def test_a_failure_is_the_first_thing_it_says(benched):
    wrong = Check("mean IoU of masks", 0.2, ">=", 0.99)
    rows = [replace(row, checks=(wrong,)) if row.checks else row for row in benched.rows]
    rows.append(Row(rows[0].contender, Outcome.STOPPED, "at frame 3: <gone>"))
    page = report(replace(benched, rows=tuple(rows)))
    assert '<p class="verdict failed">FAILED: eager-clip (mean IoU of masks), ' in page
    assert "at frame 3: &lt;gone&gt;" in page


def test_it_is_written_where_nothing_ran(benched):
    rows = tuple(row for row in benched.rows if row.outcome is Outcome.NOT_RUN)
    page = report(replace(benched, rows=rows))
    assert "Nothing was compared with the reference." in page


def test_bounds_of_fp16_are_not_told_of_a_bundle_without_it(benched, tailored):
    page = report(replace(benched, bundle=Bundle.open(tailored)))
    assert "Counted in the fp32 graphs" in page
    assert "which this bundle does not have" in page
    assert "nothing fused" not in page
    assert "FPS, ceiling" not in page
    assert "nothing fused" in report(benched)
