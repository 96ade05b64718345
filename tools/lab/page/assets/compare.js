// The configurations of the chosen runs side by side, transposed: a row per setting, a column per run. Runs of one group that
// differ in nothing but the seed share a column.
const mostColumns = () => (printing ? 12 : 40); // 12 fit on a sheet

function startCompare() {
  if (!$("configuration-tool")) return;
  $("configuration-tool").hidden = false;
  const all = $("configuration-all");

  function draw() {
    all.checked = state.keys === "all";
    const runs = chosenRuns(), most = mostColumns();
    const columns = [...grouped(runs, (r) => r.experiment + "\n" + r.settings.filter((_, i) => data.keys[i] !== "seed").join("\n")).values()];
    const value = (list, key) => {
      const values = [...new Set(list.map((r) => valueOf(r, key) ?? ""))];
      return values.length > 1 ? values.join(", ") : values[0];
    };
    const rows = [];
    for (const key of [...data.keys, ...(state.keys === "all" ? data.same.map(([k]) => k) : [])]) {
      const values = columns.map((list) => value(list, key));
      if (state.keys !== "all" && new Set(values).size < 2) continue;
      const count = new Map();
      for (const v of values) count.set(v, (count.get(v) || 0) + 1);
      const usual = [...count.entries()].sort((a, b) => b[1] - a[1])[0];
      rows.push([key, ...values.slice(0, most).map((v) => ({ text: v === "" ? "–" : v, mark: usual && usual[1] > columns.length / 2 && v !== usual[0] }))]);
    }
    const heads = columns.slice(0, most).map((list) => ({ name: list.length > 1 ? `${list[0].group} (${list.length} seeds)` : list[0].name, text: true, swatch: methodSwatch(list[0].method) }));
    const parts = [];
    if (rows.length) parts.push(makeTable("Settings of the chosen runs", [{ name: "setting", text: true }, ...heads], rows));
    else parts.push(el("p", { class: "note" }, runs.length < 2 ? "Choose two runs or more above to compare their configurations." : "The configurations of the chosen runs do not differ."));
    if (columns.length > most) parts.push(el("p", { class: "note" }, `The first ${most} of ${columns.length} columns; filter the runs to see others.`));
    $("configuration-box").replaceChildren(...parts);
  }

  all.addEventListener("change", () => choose({ keys: all.checked ? "all" : "" }));
  watch((changed) => { if (changed.some((k) => ["data", "q", "off", "keys", "theme"].includes(k))) draw(); });
  draw();
}
