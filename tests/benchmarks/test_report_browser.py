"""The report in a real browser: nothing is wider than the page, on a desk or on a phone."""

import pytest

from mrcfa.benchmarks.report import report

PROBE = """
(() => {
  const wide = [...document.querySelectorAll("main *:not(svg *)")]
    .filter(element => element.getBoundingClientRect().right > innerWidth + 0.5)
    .map(element => element.tagName + "." + element.className);
  const sizes = [...document.querySelectorAll("svg text")]
    .map(text => text.getBoundingClientRect().height);
  return {
    width: innerWidth,
    pageWidth: document.documentElement.scrollWidth,
    wide,
    smallestLetters: Math.min(...sizes),
    images: [...document.images].every(image => image.naturalWidth > 0),
    ink: getComputedStyle(document.body).color,
  };
})()
"""


@pytest.fixture(scope="module")
def seen(benched, browser, tmp_path_factory):
    """`seen(400, dark=True)`: what the browser makes of the report in a window of that width."""
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(report(benched), encoding="utf-8")

    def look(width, dark=False):
        tab = browser.open(page.as_uri(), width, dark=dark)
        tab.until("!!document.querySelector('main') && document.readyState == 'complete'")
        found = tab.value(PROBE)
        tab.close()
        return found

    return look


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overflows_and_plots_are_legible(seen, width):
    page = seen(width)
    assert page["wide"] == []
    assert page["width"] == width
    assert page["pageWidth"] <= width
    assert page["smallestLetters"] >= 9
    assert page["images"]


def test_it_follows_the_dark_mode_of_the_system(seen):
    assert seen(1280)["ink"] == "rgb(27, 31, 39)"
    assert seen(1280, dark=True)["ink"] == "rgb(231, 234, 240)"
