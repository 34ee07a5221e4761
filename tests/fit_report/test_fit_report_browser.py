"""The page in a real browser: silent, readable on a phone, tables sort, nothing asks a network.

A copy of the page gets a script that leaves what it saw in the document, which headless Chromium
prints."""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not here")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--allow-file-access-from-files",
]  # fmt: skip

ACT = """<script>
addEventListener("load", () => {
  const seen = {};
  const table = document.getElementById("table-columns");
  const head = [...table.tHead.rows[0].cells].find((cell) => cell.textContent === "Importance");
  head.firstElementChild.click();
  seen.importances = [...table.tBodies[0].rows]
    .map((row) => row.cells[head.cellIndex].textContent.trim());
  seen.width = [document.documentElement.scrollWidth, innerWidth];
  seen.figures = [...document.querySelectorAll("svg")].map((svg) => svg.getBoundingClientRect())
    .filter((box) => box.width > 100 && box.height > 50).length;
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  const text = JSON.stringify(seen);
  if (parent !== window) parent.postMessage(text, "*");
  const left = document.createElement("pre");
  left.id = "seen";
  left.textContent = text;
  document.body.append(left);
});
</script>"""

# Chromium's windows have a least width, frames have none; the styles go by the frame's width.
PHONE = """<!doctype html><title>phone</title>
<iframe src="copy.html" style="width:390px;height:844px;border:0"></iframe>
<script>
addEventListener("message", (event) => {
  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = event.data;
  document.body.append(seen);
});
</script>"""


@pytest.fixture(scope="module")
def looks(homes_page, tmp_path_factory):
    """What the script saw, and what the console said, in a window and on a phone."""
    folder = tmp_path_factory.mktemp("browser")
    text = homes_page.html.replace("</body>", f"{ACT}</body>")
    (folder / "copy.html").write_text(text, encoding="utf-8")
    (folder / "phone.html").write_text(PHONE, encoding="utf-8")
    return [look(folder / name, folder / "profile") for name in ("copy.html", "phone.html")]


def look(path, profile):
    command = [
        CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900",
        "--virtual-time-budget=10000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, done.stderr[-2000:]
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), said


def test_the_console_is_silent_and_nothing_is_requested(looks):
    for seen, said in looks:
        assert said == []
        assert seen["requests"] == []


def test_the_page_is_no_wider_than_a_phone(looks):
    for (seen, _), width in zip(looks, (1280, 390), strict=True):
        content, window = seen["width"]
        assert content <= window == width


def test_every_figure_has_a_size(looks):
    for seen, _ in looks:
        assert seen["figures"] == 5


def test_tables_sort_by_number(looks):
    values = [float(text.replace("−", "-")) for text in looks[0][0]["importances"]]
    assert values == sorted(values, reverse=True)
    assert len(values) == 5
