"""The page in a real browser: tables sort, tabs and filter work, nothing is wider than a phone.

A script uses the page as a reader would and leaves what it saw."""

import pytest

from muddle_bench.report import write_report

pytestmark = pytest.mark.slow

# All sections are laid out, those out of sight too: their widths count.
WATCH = """<style>.panels { content-visibility: visible !important; }</style><script>
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
    return browse(page.replace("<style>", f"{WATCH}<style>", 1), ACT)  # wide, and as on a phone


def test_console_stays_silent_and_the_page_never_scrolls_sideways(looks):
    for seen, said in looks:
        assert seen["problems"] == said == []
        content, window = seen["width"]
        assert content <= window
    assert looks[1][0]["width"][1] == 390


def test_tables_sort_by_click_as_numbers_and_by_keyboard(looks):
    seen, _ = looks[0]
    assert seen["start"][0] == "ascending"
    assert seen["others"] is None
    values = [float(text.replace("−", "-")) for text in seen["first"][1]]
    assert (seen["first"][0], values) == ("descending", sorted(values, reverse=True))
    assert len(set(values)) > 5
    direction, texts = seen["second"]
    assert direction == "ascending"
    assert [float(text.replace("−", "-")) for text in texts] == sorted(values)
    names = seen["enter"][1]
    assert seen["enter"] == ["ascending", sorted(names)]
    assert seen["space"] == ["descending", sorted(names, reverse=True)]
    assert seen["missing"] == ["–", "–"]  # last in both directions


def test_tabs_show_one_panel_and_the_filter_finds_methods_and_families(looks):
    seen, _ = looks[0]
    assert seen["tabs"] == [True, False]
    assert seen["after"] == [False, True]
    assert seen["filtered"] == ["catboost", "random-forest"]
    assert seen["said"] == "2 of 18"
    assert seen["unfiltered"] == 14


SECTIONS = """<script>
addEventListener("load", () => {
  const at = (id) => document.getElementById(id);
  const seen = { missing: [], flat: [] };
  for (const part of ["clean", "published"])
    for (const name of ["boards", "every", "costs", "calibration", "differences", "coverage"]) {
      const section = at(`${part}-${name}`);
      if (!section) seen.missing.push(`${part}-${name}`);
      else if (section.getBoundingClientRect().height < 200) seen.flat.push(section.id);
    }
  seen.tabs = document.querySelectorAll("#clean-every .tabs button").length;
  const marks = [...document.querySelectorAll(".strip circle")];
  seen.marks = marks.filter((mark) => mark.getBoundingClientRect().width).length;
  const first = at("clean-every-r2").querySelector(".strip:not(.key) svg").getBoundingClientRect();
  seen.strip = [first.left >= 0, first.right <= innerWidth, first.width > 100];
  for (const panel of document.querySelectorAll(".panel")) panel.hidden = false;
  for (const part of document.querySelectorAll("details")) part.open = true;
  seen.width = [document.documentElement.scrollWidth, innerWidth];
  seen.problems = problems;
  leave(seen);
});
</script>"""


def test_the_page_of_two_recipes_has_all_its_sections_wide_and_on_a_phone(
    make_table, browse, tmp_path
):
    options = {"n_datasets": 3, "whole": True}
    clean = make_table(
        recipe="clean", methods=("muddle", "muddle-compact", "catboost"), n_splits=4, **options
    )
    clean = clean[(clean["dataset"] != "insurance") | (clean["split"] < 2)]
    methods = ("ens-mlr-released", "catboost", "nu-svm")
    published = make_table(methods=methods, n_splits=2, **options)
    page = write_report([clean, published], tmp_path / "r.html").read_text(encoding="utf-8")
    for seen, said in browse(page.replace("<style>", f"{WATCH}<style>", 1), SECTIONS):
        assert seen["problems"] == said == []
        assert seen["missing"] == seen["flat"] == []
        assert seen["tabs"] == 3
        # Visible are the first tabs: R² of three data sets against one and two methods.
        assert seen["marks"] == 3 * 1 + 3 * 2
        assert seen["strip"] == [True, True, True]
        content, window = seen["width"]
        assert content <= window
