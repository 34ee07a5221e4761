"use strict";
// The page is complete without this: it adds tabs, and a filter for methods.
(() => {
  const find = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tabs: the panels of a section, one at a time.
  const show = (tabs, chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  for (const section of find(".panels")) {
    const panels = find(":scope > .panel", section);
    if (panels.length < 2) continue;
    section.classList.add("tabbed");
    const list = document.createElement("div");
    list.className = "tabs";
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", section.dataset.label);
    const tabs = panels.map((panel) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.id = "tab-" + panel.id;
      tab.textContent = panel.querySelector("h3").textContent;
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", panel.id);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      panel.querySelector("h3").classList.add("hide");
      return tab;
    });
    tabs.forEach((tab, place) => {
      tab.addEventListener("click", () => show(tabs, tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(place + step + tabs.length) % tabs.length];
        show(tabs, next);
        next.focus();
      });
    });
    list.append(...tabs);
    section.prepend(list);
    show(tabs, tabs[0]);
  }
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    const panel = target && target.closest(".panel[hidden]");
    if (panel) {
      document.getElementById("tab-" + panel.id).click();
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", follow);
  follow();

  // Filter: rows of methods whose name or family holds one of the words.
  const families = JSON.parse(document.getElementById("families").textContent);
  const form = document.querySelector(".filter");
  const input = form.querySelector("input");
  const rows = find("tr[data-m]").map((row) => [row, row.dataset.m]);
  const filter = () => {
    const words = input.value.toLowerCase().split(/[\s,]+/).filter(Boolean);
    const fits = (method) =>
      !words.length ||
      words.some((word) => method.includes(word) || families[method].toLowerCase() === word);
    for (const [row, method] of rows) row.hidden = !fits(method);
    const names = Object.keys(families);
    const shown = names.filter(fits).length;
    form.querySelector("output").textContent = words.length ? `${shown} of ${names.length}` : "";
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", filter);
})();
