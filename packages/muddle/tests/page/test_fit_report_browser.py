"""The page in a real browser: silent, readable on a phone, tables sort, nothing asks a network."""

import pytest

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
  leave(seen);
});
</script>"""


@pytest.fixture(scope="module")
def looks(browse, homes_page):
    """What the script saw, and what the console said, in a window and on a phone."""
    return browse(homes_page.html, ACT)


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
