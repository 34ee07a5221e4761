"""The page in a real browser: tables sort, tabs and filter work, nothing is wider than a phone.

A script uses the page as a reader would and leaves what it saw."""

import pytest

pytestmark = pytest.mark.slow

WATCH = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
console.error = console.warn = (...words) => problems.push(words.join(" "));
</script>"""

ACT = """<script>
addEventListener("load", () => {
  const seen = {};
  const table = document.getElementById("leaderboard_r2");
  const head = (name) =>
    [...table.tHead.rows[0].cells].find((cell) => cell.textContent.startsWith(name));
  const place = (name) => head(name).cellIndex;
  const column = (name) =>
    [...table.tBodies[0].rows].map((row) => row.cells[place(name)].textContent.trim());
  const state = (name) => [head(name).getAttribute("aria-sort"), column(name)];
  const press = (key) => head("Method").firstElementChild.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  seen.start = state("Mean rank");
  head("PMA").firstElementChild.click();
  seen.first = state("PMA");
  seen.others = head("Mean rank").getAttribute("aria-sort");
  head("PMA").firstElementChild.click();
  seen.second = state("PMA");
  press("Enter");
  seen.enter = state("Method");
  press(" ");
  seen.space = state("Method");

  const gaps = document.getElementById("classes_published_r2");
  const heads = [...gaps.tHead.rows[1].cells];
  const printed = heads.filter((cell) => cell.textContent.startsWith("published"))[1];
  seen.missing = [0, 1].map(() => {
    printed.firstElementChild.click();
    const rows = [...gaps.tBodies[0].rows];
    return rows[rows.length - 1].cells[printed.cellIndex].textContent.trim();
  });

  const shown = (id) => !document.getElementById(id).hidden;
  seen.tabs = [shown("board-r2"), shown("board-auc")];
  document.getElementById("tab-board-auc").click();
  seen.after = [shown("board-r2"), shown("board-auc")];

  const input = document.getElementById("filter");
  const visible = () => [...table.tBodies[0].rows].filter((row) => !row.hidden)
    .map((row) => row.dataset.m).sort();
  input.value = "catboost, rf";
  input.dispatchEvent(new Event("input"));
  seen.filtered = visible();
  seen.said = document.querySelector(".filter output").textContent;
  input.value = "";
  input.dispatchEvent(new Event("input"));
  seen.unfiltered = visible().length;

  for (const panel of document.querySelectorAll(".panel")) panel.hidden = false;
  for (const part of document.querySelectorAll("details")) part.open = true;
  seen.width = [document.documentElement.scrollWidth, innerWidth];
  seen.problems = problems;
  leave(seen);
});
</script>"""


@pytest.fixture(scope="module")
def looks(browse, report):
    page = report.read_text(encoding="utf-8")
    return browse(page.replace("<style>", f"{WATCH}<style>", 1), ACT)


@pytest.fixture(scope="module")
def wide(looks):
    return looks[0]


@pytest.fixture(scope="module")
def phone(looks):
    return looks[1]


def test_console_stays_silent(wide, phone):
    for seen, said in (wide, phone):
        assert seen["problems"] == []
        assert said == []


def test_tables_sort_by_click_as_numbers(wide):
    seen, _ = wide
    assert seen["start"][0] == "ascending"
    assert seen["others"] is None
    direction, texts = seen["first"]
    values = [float(text.replace("−", "-")) for text in texts]
    assert direction == "descending"
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 5
    direction, texts = seen["second"]
    assert direction == "ascending"
    assert [float(text.replace("−", "-")) for text in texts] == sorted(values)


def test_tables_sort_by_keyboard(wide):
    seen, _ = wide
    direction, names = seen["enter"]
    assert direction == "ascending"
    assert names == sorted(names)
    direction, names = seen["space"]
    assert direction == "descending"
    assert names == sorted(names, reverse=True)


def test_missing_values_come_last_in_both_directions(wide):
    assert wide[0]["missing"] == ["–", "–"]


def test_tabs_show_one_panel_at_a_time(wide):
    assert wide[0]["tabs"] == [True, False]
    assert wide[0]["after"] == [False, True]


def test_filter_finds_methods_and_families(wide):
    seen, _ = wide
    assert seen["filtered"] == ["catboost", "random-forest"]
    assert seen["said"] == "2 of 18"
    assert seen["unfiltered"] == 14


def test_the_page_never_scrolls_sideways(wide, phone):
    for seen, _ in (wide, phone):
        content, window = seen["width"]
        assert content <= window
    assert phone[0]["width"][1] == 390
