// The table of all runs: words and conditions filter it, any key groups and sorts it, columns are chosen.
const mostRows = 400, longHead = 22; // letters of a heading; of a longer title the metric's name stands there

// columnsOf lists what runs have; more are those that are not shown unless asked for.
function columnsOf() {
  const several = (key) => new Set(data.runs.map((r) => valueOf(r, key))).size > 1;
  const out = [{ key: "state", title: "state", text: true }];
  out.push({ key: "method", title: "method", text: true, more: !several("method") });
  for (const a of data.axes) if (a !== "run" && a !== "method") out.push({ key: a, title: a, text: true });
  out.push({ key: "sweep", title: "sweep", text: true, more: !several("sweep") }, { key: "seed", title: "seed", more: !several("seed") },
    { key: "tags", title: "tags", text: true, more: !several("tags") }, { key: "rounds", title: "rounds" });
  for (const [key, title] of [["sign", "last sign of life"], ["left", "remaining"]]) if (data.runs.some((r) => r[key])) out.push({ key, title, text: true });
  data.metrics.forEach((m, i) => out.push({ key: m.name, title: m.title, head: m.title.length > longHead ? m.name : m.title, metric: i, unit: m.unit, more: i > 4 }));
  for (const k of data.keys) if (k !== "seed" && k !== "method" && !data.axes.includes(k)) out.push({ key: k, title: k, text: true, more: true });
  const asked = new Map(listed(state.columns).map((c) => [c.slice(1), c[0] === "+"]));
  for (const c of out) c.shown = asked.has(c.key) ? asked.get(c.key) : !c.more;
  return out;
}

const sortValue = (run, c) => (c.key === "rounds" ? run.rounds : c.metric !== undefined ? lastOfCurve(run, c.metric) : valueOf(run, c.key));

function startRuns() {
  if (!$("runs-tool")) return;
  const find = $("runs-find"), by = $("runs-by"), box = $("runs-box"), table = $("runs-table");
  $("runs-tool").hidden = false;
  const closed = new Set();
  let all = false;

  function controls() {
    find.value = state.q;
    choices(by, [["", "nothing"], ["group", "seeds"], ...kinds().filter((k) => k !== "run").map((k) => [k, k])], state.by);
    $("runs-columns").replaceChildren(...columnsOf().map((c) => el("label", {}, el("input", {
      type: "checkbox", checked: c.shown, onchange: (e) => {
        const rest = listed(state.columns).filter((x) => x.slice(1) !== c.key);
        if (e.target.checked === !c.more) choose({ columns: rest.join("|") });
        else choose({ columns: [...rest, (e.target.checked ? "+" : "-") + c.key].join("|") });
      },
    }), c.title)));
  }

  function draw() {
    const columns = columnsOf().filter((c) => c.shown);
    const runs = found(), off = new Set(listed(state.off));
    const [sign, key] = state.sort ? [state.sort[0] === "-" ? -1 : 1, state.sort.slice(1)] : [0, ""];
    const sorter = key === "name" ? { key: "name" } : columns.find((c) => c.key === key);
    const sort = (list, of) => sorter && sign ? [...list].sort((a, b) => order(of(a), of(b), sign)) : list;
    const sorted = sort(runs, (r) => sortValue(r, sorter));
    const head = el("tr", {}, heading("name", "run", true, true), ...columns.map((c) => heading(c.key, (c.head || c.title) + (c.unit === "%" ? " (%)" : ""), c.text, false, c.title)));
    const bodies = [];
    if (!state.by) {
      bodies.push(el("tbody", {}, ...sorted.slice(0, all ? Infinity : mostRows).map((r) => row(r, columns, off))));
    } else {
      const seeds = state.by === "group"; // runs of one name may be of two experiments
      const groups = [...grouped(sorted, (r) => (seeds ? r.experiment : valueOf(r, state.by)))].map(([key, list]) => [seeds ? list[0].group : key, list]);
      for (const [name, list] of sorter && sorter.metric !== undefined && sign ? sort(groups, ([, l]) => mean(l, sorter)) : groups) {
        bodies.push(el("tbody", {}, total(name, list, columns, off), ...(closed.has(name) ? [] : list.map((r) => row(r, columns, off)))));
      }
    }
    const focused = document.activeElement && document.activeElement.dataset.at;
    table.tHead.replaceChildren(head);
    [...table.tBodies].forEach((b) => b.remove());
    table.append(...bodies);
    if (focused && table.contains(document.activeElement) === false) table.querySelector(`[data-at="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    const shown = chosenRuns().length;
    $("runs-status").textContent = [`${runs.length} of ${data.runs.length} runs`, shown < runs.length ? `${shown} in curves` : ""].filter(Boolean).join(", ");
    $("runs-all").hidden = all || state.by !== "" || sorted.length <= mostRows;
  }

  function heading(key, title, text, first, meaning) {
    const now = state.sort.slice(1) === key ? state.sort[0] : "";
    const next = text ? { "": "+", "+": "-", "-": "" } : { "": "-", "-": "+", "+": "" };
    const th = el("th", { scope: "col", class: text ? "text" : "" }, ...(first ? [el("input", {
      type: "checkbox", checked: !found().some((r) => listed(state.off).includes(r.folder)), "aria-label": "All runs in curves", "data-at": "all",
      onchange: (e) => choose({ off: e.target.checked ? "" : found().map((r) => r.folder).join("|") }),
    })] : []), el("button", { type: "button", "data-at": "sort-" + key, title: meaning && meaning !== title ? `${meaning}. Sort by this column` : "Sort by this column", onclick: () => choose({ sort: next[now] ? next[now] + key : "" }) }, title));
    if (now) th.setAttribute("aria-sort", now === "+" ? "ascending" : "descending");
    return th;
  }

  function row(r, columns, off) {
    const name = el("th", { scope: "row", class: "text" }, el("input", {
      type: "checkbox", checked: !off.has(r.folder), "aria-label": `${r.name} in curves`, "data-at": "off-" + r.folder,
      onchange: (e) => choose({ off: [...listed(state.off).filter((x) => x !== r.folder), ...(e.target.checked ? [] : [r.folder])].join("|") }),
    }), methodSwatch(r.method), el("button", { type: "button", class: "link", "data-at": "run-" + r.folder, title: "Show this run", onclick: () => { choose({ run: r.folder }); goTo("run"); } }, r.name));
    return el("tr", { class: r.folder === state.run ? "here" : "" }, name, ...columns.map((c) => el("td", { class: c.text ? "text" : "" }, shownValue(r, c))));
  }

  function shownValue(r, c) {
    if (c.key === "rounds") return r.planned > 0 && r.state !== "done" ? `${r.rounds} of ${r.planned}` : String(r.rounds);
    if (c.key === "state") return el("span", { class: "state " + r.state, title: r.why || "" }, r.state);
    const v = sortValue(r, c);
    return v == null ? "" : c.metric !== undefined ? formatValue(v, c.unit) : String(v);
  }

  // averaged are the values behind a mean: of finished runs for a metric, and none of two evaluations.
  const averaged = (list, c) => {
    const runs = list.filter((r) => c.metric === undefined || r.state === "done");
    return c.metric !== undefined && mixed(runs, c.metric) ? [] : runs.map((r) => sortValue(r, c)).filter((v) => v != null);
  };

  const mean = (list, c) => {
    const values = averaged(list, c).map(Number);
    return values.length ? meanStd(values).mean : null;
  };

  // total is the line above the runs of a group: what they share, and means over them.
  function total(name, list, columns, off) {
    const cells = columns.map((c) => {
      if (c.text || c.key === "seed") {
        const values = [...new Set(list.map((r) => valueOf(r, c.key) ?? ""))];
        return values.length === 1 ? String(values[0]) : `${values.length} values`;
      }
      const values = averaged(list, c);
      if (!values.length) return "";
      const s = meanStd(values);
      const text = formatValue(s.mean, c.unit);
      return c.metric !== undefined && s.std != null ? `${text} ± ${formatValue(s.std, c.unit)} (n = ${s.n})` : text;
    });
    const open = !closed.has(name);
    return el("tr", { class: "total" }, el("th", { scope: "rowgroup", class: "text" }, el("input", {
      type: "checkbox", checked: list.some((r) => !off.has(r.folder)), "aria-label": `${name || "none"} in curves`, "data-at": "group-" + name,
      onchange: (e) => { const ids = new Set(list.map((r) => r.folder)); choose({ off: [...listed(state.off).filter((x) => !ids.has(x)), ...(e.target.checked ? [] : ids)].join("|") }); },
    }), methodSwatch(new Set(list.map((r) => r.method)).size === 1 ? list[0].method : ""), el("button", {
      type: "button", class: "link", "aria-expanded": String(open), "data-at": "open-" + name,
      onclick: () => { if (open) closed.add(name); else closed.delete(name); draw(); },
    }, `${state.by === "group" ? "" : state.by + " = "}${name === "" ? "none" : name}`), el("span", { class: "count" }, String(list.length))),
    ...cells.map((text, i) => el("td", { class: columns[i].text ? "text" : "" }, text)));
  }

  let waiting = 0;
  find.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => choose({ q: find.value.trim() }), 120);
  });
  by.addEventListener("change", () => choose({ by: by.value }));
  $("runs-all").addEventListener("click", () => { all = true; draw(); });
  $("runs-on").addEventListener("click", () => choose({ off: "" }));
  $("runs-copy").append(copyButtons(table));
  fade(box);
  watch((changed) => {
    if (changed.some((k) => ["data", "columns"].includes(k))) controls();
    if (changed.includes("q") && document.activeElement !== find) find.value = state.q;
    if (changed.includes("by")) by.value = state.by;
    if (changed.some((k) => ["data", "q", "by", "sort", "columns", "off", "run", "theme"].includes(k))) draw();
  });
  controls();
  draw();
}

function order(a, b, sign) {
  if (a == null || a === "" || b == null || b === "") return (a == null || a === "" ? 1 : 0) - (b == null || b === "" ? 1 : 0);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));
}
