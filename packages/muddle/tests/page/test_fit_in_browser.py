"""The page in a browser: no messages, no requests, no overflow on a phone, tables that sort."""

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


def test_the_page_in_a_window_and_on_a_phone(browse, homes_page):
    for width, (seen, console) in zip((1280, 390), browse(homes_page.html, ACT), strict=True):
        assert console == []
        assert seen["requests"] == []
        content, window = seen["width"]
        assert content <= window == width
        assert seen["figures"] == homes_page.tags.count("svg") > 5
        values = [float(text.replace("−", "-")) for text in seen["importances"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 5
