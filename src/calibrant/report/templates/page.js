
"use strict";
// Sorting, searching, drop-down lists, toggles, tooltips and the theme; the page is complete without this script.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // The reader's choices survive a reload; the page of a running experiment reloads itself.
  const store = {
    key: "calibrant " + location.pathname,
    read() { try { return JSON.parse(sessionStorage.getItem(this.key)) || {}; } catch { return {}; } },
    save(name, value) {
      try { sessionStorage.setItem(this.key, JSON.stringify({ ...this.read(), [name]: value })); } catch { /* no storage */ }
    },
  };
  const saved = store.read();

  // Tables: each column header is a button that sorts; missing values stay last.
  const columnsOf = (table) => {
    const taken = [];
    const found = [];
    const rows = [...table.tHead.rows];
    rows.forEach((row, y) => {
      let x = 0;
      for (const cell of row.cells) {
        while (taken[y]?.[x]) x += 1;
        for (let down = 0; down < cell.rowSpan; down += 1) {
          taken[y + down] ??= [];
          for (let across = 0; across < cell.colSpan; across += 1) taken[y + down][x + across] = true;
        }
        if (cell.colSpan === 1 && y + cell.rowSpan === rows.length) found.push([cell, x]);
      }
    });
    return found;
  };
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell?.dataset.value ?? cell?.textContent.trim() ?? "";
    if (text === "" || text === "–" || text === "nan") return null;
    const number = Number(text.replace(/[,%]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true }));
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    const heads = columnsOf(table);
    for (const [head, column] of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const keyed = [...body.rows].map((row) => [keyOf(row, column), row]);
        const numeric = keyed.some(([key]) => typeof key === "number");
        const before = head.getAttribute("aria-sort");
        const down = before === "none" ? numeric : before === "ascending";
        keyed.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return down ? compare(b, a) : compare(a, b);
        });
        for (const [other] of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...keyed.map(([, row]) => row));
      });
    }
  }

  // A search box that hides the rows of a table without the text.
  for (const line of all("[data-filter-of]")) {
    const input = line.querySelector("input");
    const count = line.querySelector("output");
    const rows = [...document.getElementById(line.dataset.filterOf).tBodies[0].rows];
    line.hidden = false;
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of rows) row.hidden = ![...row.cells].some((cell) => cell.textContent.toLowerCase().includes(wanted));
      count.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    });
  }

  // A drop-down list shows one of several panels.
  for (const select of all("select[data-switch]")) {
    const name = select.dataset.switch;
    const panels = all("[data-panel-of]").filter((panel) => panel.dataset.panelOf === name);
    const show = () => { for (const panel of panels) panel.hidden = panel.dataset.panel !== select.value; };
    if ([...select.options].some((option) => option.value === saved[`switch ${name}`])) select.value = saved[`switch ${name}`];
    select.closest(".switch").hidden = false;
    select.addEventListener("change", () => { store.save(`switch ${name}`, select.value); show(); });
    show();
  }

  // Toggles hide the marks of a series: their label is its name, or begins with its name and a colon.
  for (const fieldset of all("[data-toggles]")) {
    const name = fieldset.dataset.toggles;
    const boxes = all("input", fieldset);
    const marks = all("[data-series-in]")
      .filter((place) => place.dataset.seriesIn === name)
      .flatMap((place) => all("svg [aria-label]", place));
    const longestFirst = boxes.map((box) => box.value).sort((a, b) => b.length - a.length);
    const seriesOf = (label) => longestFirst.find((series) => label === series || label.startsWith(`${series}: `));
    const show = () => {
      const off = boxes.filter((box) => !box.checked).map((box) => box.value);
      for (const mark of marks) mark.classList.toggle("off", off.includes(seriesOf(mark.getAttribute("aria-label"))));
      store.save(`off ${name}`, off);
    };
    for (const box of boxes) {
      box.checked = !(saved[`off ${name}`] || []).includes(box.value);
      box.addEventListener("change", show);
    }
    for (const [selector, checked] of [["[data-all]", true], ["[data-none]", false]]) {
      fieldset.querySelector(selector).addEventListener("click", () => {
        for (const box of boxes) box.checked = checked;
        show();
      });
    }
    fieldset.hidden = false;
    show();
  }

  // The tooltip of the mark under the pointer.
  const tooltip = document.getElementById("tooltip");
  document.addEventListener("pointerover", (event) => {
    const mark = event.target instanceof Element && event.target.closest(".drawing svg .role-mark [aria-label]");
    tooltip.hidden = !mark;
    if (!mark) return;
    tooltip.textContent = mark.getAttribute("aria-label");
    const { width, height } = tooltip.getBoundingClientRect();
    const left = Math.max(4, Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 4));
    const above = event.clientY - height - 12;
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${above > 4 ? above : event.clientY + 16}px`;
  });

  for (const button of all("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // Light or dark like the system, unless the reader chooses.
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  if (saved.theme) document.documentElement.dataset.theme = saved.theme;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    store.save("theme", document.documentElement.dataset.theme);
    name();
  });
  system.addEventListener("change", name);
  name();
})();
