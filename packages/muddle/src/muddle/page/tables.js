"use strict";
// Optional: makes tables sortable, and opens folded parts for printing.
(() => {
  const find = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Sorting: a button in every head cell. Missing values come last in both directions.
  const key = (row, column, numeric) => {
    const cell = row.cells[column];
    if (cell.classList.contains("missing")) return null;
    const text = cell.dataset.v ?? cell.textContent.trim();
    return numeric ? parseFloat(text.replace("\u2212", "-")) : text.toLowerCase();
  };
  const sortBy = (table, head, column) => {
    const numeric = head.classList.contains("n");
    const now = head.getAttribute("aria-sort");
    const down = now === null ? numeric : now === "ascending";
    for (const other of find("thead th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, column, numeric), row]);
    const order = (a, b) =>
      a === b ? 0 : a === null ? 1 : b === null ? -1 : (a < b ? -1 : 1) * (down ? -1 : 1);
    rows.sort((a, b) => order(a[0], b[0]));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  };
  for (const table of find("table")) {
    [...table.tHead.rows[table.tHead.rows.length - 1].cells].forEach((head, column) => {
      // Not a <button>: browsers leave those out of the heads they repeat on every printed page.
      const button = document.createElement("span");
      button.className = "sort";
      button.tabIndex = 0;
      button.setAttribute("role", "button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, head, column));
      button.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sortBy(table, head, column);
      });
    });
  }

  // Folded parts must be open on paper.
  addEventListener("beforeprint", () => {
    for (const part of find("details")) part.open = true;
  });
})();
