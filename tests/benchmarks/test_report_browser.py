"""The report in a real browser: nothing is wider than the page, on a desk or on a phone."""

import json
import re
import shutil
import subprocess

import pytest

from benchmarks.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PROBE = """
<iframe src="report.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  const wide = [...page.querySelectorAll("main *:not(svg *)")]
    .filter(element => element.getBoundingClientRect().right > {width} + 0.5)
    .map(element => element.tagName + "." + element.className);
  const sizes = [...page.querySelectorAll("svg text")]
    .map(text => text.getBoundingClientRect().height);
  document.title = JSON.stringify({{
    pageWidth: page.documentElement.scrollWidth, wide,
    smallestLetters: Math.min(...sizes),
    images: [...page.images].every(image => image.naturalWidth > 0),
    ink: page.defaultView.getComputedStyle(page.body).color,
  }});
}};
</script>
"""


@pytest.fixture(scope="module")
def folder(benched, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(report(benched), encoding="utf-8")
    return folder


def seen(folder, width, *flags):
    """What the browser makes of the report in a window of that width."""
    (folder / "probe.html").write_text(PROBE.format(width=width))
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}", *flags]
    done = subprocess.run(
        [*command, (folder / "probe.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    return json.loads(re.search(r"<title>(.*?)</title>", done.stdout).group(1))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overflows_and_plots_are_legible(folder, width):
    page = seen(folder, width)
    assert page["wide"] == []
    assert page["pageWidth"] <= width
    assert page["smallestLetters"] >= 9
    assert page["images"]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_it_follows_the_dark_mode_of_the_system(folder):
    light, dark = seen(folder, 1280), seen(folder, 1280, "--force-dark-mode")
    assert light["ink"] == "rgb(27, 31, 39)"
    assert dark["ink"] == "rgb(231, 234, 240)"
