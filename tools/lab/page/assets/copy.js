// Tables are copied as they are shown: rows that a filter hides and footnote marks are left out.

function shownRows(table) {
  const text = (cell) => {
    const c = cell.cloneNode(true);
    c.querySelectorAll("sup, input, svg").forEach((e) => e.remove());
    c.querySelectorAll(".paper").forEach((e) => e.replaceWith(` (${e.textContent.trim()})`));
    return c.textContent.replace(/\s+/g, " ").trim();
  };
  const wide = Math.max(...[...table.rows].map((r) => [...r.cells].reduce((n, c) => n + c.colSpan, 0)));
  const head = Array(wide).fill(""), down = Array(wide).fill(0);
  for (const row of table.tHead.rows) { // headings over several columns come before those below them
    let at = 0;
    for (const cell of row.cells) {
      while (down[at] > 0) down[at++]--;
      for (let i = 0; i < cell.colSpan; i++, at++) {
        head[at] = [head[at], text(cell)].filter(Boolean).join(" ");
        down[at] = cell.rowSpan - 1;
      }
    }
  }
  const body = [...table.tBodies].flatMap((b) => [...b.rows]).filter((r) => !r.hidden);
  return { head, rows: body.map((r) => [...r.cells].flatMap((c) => [text(c), ...Array(c.colSpan - 1).fill("")])), numeric: head.map((_, i) => body.length > 0 && body.every((r) => !r.cells[i] || !r.cells[i].classList.contains("text"))) };
}

const latexSigns = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", $: "\\$", "&": "\\&", "%": "\\%", "#": "\\#", _: "\\_", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "<": "$<$", ">": "$>$", "|": "$|$", "±": "$\\pm$", "−": "$-$", "–": "--", "×": "$\\times$", "≤": "$\\le$", "≥": "$\\ge$" };

const writers = {
  Markdown: ({ head, rows, numeric }) => {
    const line = (cells) => "| " + cells.map((c) => c.replace(/[\\`*_<>[\]#~|]/g, "\\$&")).join(" | ") + " |\n";
    return line(head) + "|" + numeric.map((n) => (n ? " ---: |" : " --- |")).join("") + "\n" + rows.map(line).join("");
  },
  LaTeX: ({ head, rows, numeric }) => {
    const line = (cells) => cells.map((c) => c.replace(/[\\{}$&%#_^~<>|±−–×≤≥]/g, (s) => latexSigns[s])).join(" & ") + " \\\\\n";
    return "% needs \\usepackage{booktabs}\n\\begin{tabular}{" + numeric.map((n) => (n ? "r" : "l")).join("") + "}\n\\toprule\n" + line(head) + "\\midrule\n" + rows.map(line).join("") + "\\bottomrule\n\\end{tabular}\n";
  },
  CSV: ({ head, rows }) => {
    const line = (cells) => cells.map((c) => (/[",\n]/.test(c) ? `"${c.replaceAll('"', '""')}"` : c)).join(",") + "\r\n";
    return line(head) + rows.map(line).join("");
  },
};

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page from a file, or without the right
    const box = el("textarea", { value: text, class: "heard", "aria-hidden": "true" });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}

// copyButtons copy a table in one of three forms.
function copyButtons(table) {
  const said = el("span", { class: "status", role: "status" });
  const buttons = Object.keys(writers).map((form) => el("button", {
    type: "button", "aria-label": `Copy the table as ${form}`, onclick: async () => {
      await copyText(writers[form](shownRows(table)));
      said.textContent = "copied";
      setTimeout(() => (said.textContent = ""), 2000);
    },
  }, form));
  return el("span", { class: "copy" }, el("span", { class: "status" }, "Copy as"), el("span", { class: "buttons", role: "group", "aria-label": "Copy the table" }, ...buttons), said);
}
