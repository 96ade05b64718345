// One run: what it is, its classes and confusion matrix, terms, log and configuration.

function startRun() {
  if (!$("run-tool")) return;
  $("run-tool").hidden = false;
  const select = $("run-run");
  let shownLog = "";

  function controls() {
    choices(select, data.runs.map((r) => [r.id, r.name]), state.run || (data.runs[0] || {}).id);
  }

  async function draw() {
    const run = runOf(state.run);
    if (!run) return;
    select.value = run.id;
    const facts = [["method", run.method], ["state", run.why ? `${run.state}: ${run.why}` : run.state], ["sweep", run.sweep], ["seed", run.seed],
      ["rounds", run.planned ? `${roundsOf(run)} of ${run.planned}` : roundsOf(run)], ["tags", run.tags.join(", ")], ["folder", run.id],
      ...data.metrics.map((m, i) => [m.title, lastOfCurve(run, i) == null ? "" : formatValue(lastOfCurve(run, i), m.unit) + (m.unit === "%" ? " %" : "")])];
    const shown = (list) => list.filter(([, v]) => v !== "" && v != null).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, String(v))));
    $("run-facts").replaceChildren(...shown(facts));
    const d = await detailsOf(run);
    if (runOf(state.run) !== run) return;
    $("run-facts").replaceChildren(...shown([...facts, ...(d ? d.facts : []).map((f) => [f.Name, f.Value])]));
    drawConfusion(d && d.confusion);
    drawTerms(d ? d.terms : []);
    const log = $("run-log"), lines = d ? d.log : [];
    $("run-log-part").hidden = !lines.length;
    const text = lines.join("\n"), end = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    if (text !== shownLog) {
      shownLog = text;
      log.querySelector("pre").textContent = text;
      if (end) log.scrollTop = log.scrollHeight;
    }
    const config = d ? d.config : [];
    $("run-config-part").hidden = !config.length;
    $("run-config").replaceChildren(...config.flatMap((l) => [typeof l === "string" ? l : marked(l[0]), "\n"]));
  }

  const marked = (text) => {
    const bare = text.trimStart();
    return el("span", {}, text.slice(0, text.length - bare.length), el("mark", {}, bare));
  };

  select.addEventListener("change", () => choose({ run: select.value }));
  watch((changed) => {
    if (changed.includes("data")) controls();
    if (changed.some((k) => ["data", "run", "view", "theme"].includes(k))) draw();
  });
  controls();
  draw();
}

let confusionGrid, confusion;

// drawConfusion draws how often which class was taken for which, and lists the classes.
function drawConfusion(c) {
  const views = ["global", "personal"].filter((v) => c && c[v]);
  $("classes-tool").hidden = !views.length || !c.classes.length;
  if ($("classes-tool").hidden) return;
  const view = views.includes(state.view) ? state.view : views[0];
  choices($("classes-view"), views.map((v) => [v, v]), view);
  $("classes-view-label").hidden = views.length < 2;
  if (!confusionGrid) {
    confusionGrid = new Grid($("classes-grid"), readConfusion);
    $("classes-view").addEventListener("change", (e) => choose({ view: e.target.value }));
    $("classes-grid").addEventListener("blur", () => confusionGrid.leave());
  }
  const n = c.classes.length;
  const totals = (v) => { const t = Array(n).fill(0), correct = Array(n).fill(0); for (const [a, b, k] of c[v] || []) { t[a] += k; if (a === b) correct[a] += k; } return { t, correct }; };
  const { t } = totals(view);
  const counts = c.classes.map(() => []);
  for (const [a, b, k] of c[view]) counts[b].push([a, k / t[a]]);
  confusion = { c, view, t, of: new Map(c[view].map(([a, b, k]) => [a * n + b, k])) };
  confusionGrid.draw({ clients: c.classes.map((_, i) => i), classes: c.classes, names: c.classes, whole: (cls) => t[cls] > 0, counts, largest: 1, form: "cells", strips: [], colour: mapColour });
  $("classes-key").replaceChildren(mapKey("0", "1, share of the class"));
  readConfusion(null);
  $("classes-grid").setAttribute("aria-label", `Confusion matrix of ${n} classes; arrow keys read it`);
  const by = Object.fromEntries(views.map((v) => [v, totals(v)]));
  const mistaken = (a) => c[view].filter(([x, y]) => x === a && y !== a).sort((x, y) => y[2] - x[2]).slice(0, 3).map(([, y, k]) => `${c.classes[y]} ${k}`).join(", ");
  $("classes-table").replaceChildren(makeTable("Classes", [{ name: "class", text: true }, { name: "test examples" }, ...views.map((v) => ({ name: `${v} accuracy (%)` })), { name: "most often predicted as", text: true }],
    c.classes.map((name, a) => [name, number(t[a]), ...views.map((v) => (by[v].t[a] ? { text: ((100 * by[v].correct[a]) / by[v].t[a]).toFixed(2), key: by[v].correct[a] / by[v].t[a] } : "–")), mistaken(a)])));
}

function readConfusion(taken, cls) {
  const { c, view, t, of } = confusion;
  if (taken === null) {
    const all = t.reduce((a, b) => a + b, 0), correct = c[view].reduce((a, [x, y, k]) => a + (x === y ? k : 0), 0);
    $("classes-read").textContent = `${c.classes.length} classes, ${all.toLocaleString("en")} test examples, ${view} accuracy ${((100 * correct) / Math.max(1, all)).toFixed(2)} %`;
    return;
  }
  const k = of.get(cls * c.classes.length + taken) || 0;
  $("classes-read").textContent = `${c.classes[cls]} predicted as ${c.classes[taken]}: ${k} of ${t[cls]}`;
}

let termsChart;

// drawTerms draws how long the gradient of each term of the loss is beside that of cross entropy.
function drawTerms(terms) {
  $("terms-tool").hidden = !terms.length;
  if (!terms.length) return;
  if (!termsChart) termsChart = new Chart($("terms-chart"), () => {});
  const lines = terms.map((t, i) => ({ key: t.name, name: t.name, x: intern(t.x.map((x) => x + 1)), y: t.relative, low: null, high: null, colour: groupColour(i), dash: dashes[i % dashes.length], width: 2 }));
  termsChart.draw(lines, lines, "", { logy: true });
  const last = (v) => { const x = lastOf(v); return x == null ? "–" : { text: formatValue(x, ""), key: x }; };
  $("terms-table").replaceChildren(makeTable("Terms of the loss, last round", [{ name: "term", text: true }, { name: "value" }, { name: "gradient norm" }, { name: "relative to cross entropy's" }],
    terms.map((t, i) => [{ text: t.name, swatch: swatch(lines[i]) }, last(t.value), last(t.norm), last(t.relative)])));
}
