// enhance makes the headings of a table sort it, and puts a filter above it where there are rows enough to look for.
function enhance(table) {
  const bodies = [...table.tBodies];
  const body = bodies[0];
  const original = [...body.rows];
  const heads = [...table.querySelectorAll("thead th[data-column]")];

  const sort = (column, direction) => {
    const rows = [...original];
    if (direction) {
      const sign = direction === "ascending" ? 1 : -1;
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], sign));
    }
    body.append(...rows);
  };

  for (const th of heads) {
    const column = Number(th.dataset.column);
    const numeric = original.some((r) => r.cells[column] && r.cells[column].dataset.key !== undefined);
    const order = numeric ? ["descending", "ascending", ""] : ["ascending", "descending", ""];
    const button = el("button", { type: "button", title: [th.title, "Sort by this column"].filter(Boolean).join(". ") }, ...th.childNodes);
    button.addEventListener("click", () => {
      const now = th.getAttribute("aria-sort") || "";
      const next = order[(order.indexOf(now) + 1) % order.length];
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      if (next) th.setAttribute("aria-sort", next);
      sort(column, next);
    });
    th.replaceChildren(button);
  }
  addTools(table, original);
  fade(table.closest(".scroll"));
}

// fade lets the right edge of a box fade while there is more to scroll to.
function fade(box) {
  const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
}

// compare puts cells with a number first, then texts, then blanks, whichever the direction.
function compare(a, b, sign) {
  const x = a.dataset.key, y = b.dataset.key;
  if (x !== undefined && y !== undefined) return sign * (Number(x) - Number(y));
  if (x !== undefined || y !== undefined) return x !== undefined ? -1 : 1;
  const s = a.textContent.trim(), t = b.textContent.trim();
  if (!s || !t) return (s ? 0 : 1) - (t ? 0 : 1);
  return sign * collator.compare(s, t);
}

// addTools puts a filter, where there are rows enough to look for, and buttons that copy, above a table.
function addTools(table, rows) {
  const tools = el("div", { class: "rowfilter" });
  if (rows.length > 4) {
    const status = el("span", { class: "status", role: "status" });
    const input = el("input", { type: "search", autocomplete: "off" });
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
        if (!row.hidden) shown++;
      }
      status.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
    });
    tools.append(el("label", {}, "Filter rows ", input), status);
  }
  tools.append(copyButtons(table));
  table.closest(".scroll").before(tools);
}

// markMethods puts the colour of a method before its name in the first column of a table.
function markMethods(table) {
  if (data.methods.length < 2) return;
  for (const row of table.querySelectorAll("tbody tr")) {
    const cell = row.cells[0], name = cell && cell.textContent.trim();
    if (cell && cell.classList.contains("text") && data.methods.includes(name) && !cell.querySelector("svg")) cell.prepend(methodSwatch(name));
  }
}

// makeTable builds a sortable table. A cell is a text, or {text, key}.
function makeTable(label, columns, rows) {
  const head = el("tr", {}, ...columns.map((c, i) => el("th", { scope: "col", class: c.text ? "text" : "", "data-column": i }, c.swatch || "", c.name)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell, i) => {
    const { text, key } = typeof cell === "object" ? cell : { text: cell };
    const props = { class: [columns[i].text ? "text" : "", cell && cell.mark ? "marked" : ""].join(" ").trim() };
    if (key !== undefined && key !== null) props["data-key"] = key;
    if (i === 0) props.scope = "row";
    return el(i === 0 ? "th" : "td", props, (cell && cell.swatch) || "", String(text));
  })));
  const table = el("table", { class: "sortable" }, el("thead", {}, head), el("tbody", {}, ...body));
  const box = el("div", { class: "table" }, el("div", { class: "scroll", role: "group", tabIndex: 0, "aria-label": label }, table));
  enhance(table);
  return box;
}
