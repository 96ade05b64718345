// One run: its facts, and panels about it.

// panels has a function for each panel: called once with the panel's box, it returns one that draws the panel's data (null where the run
// has none) of a run, and returns false where there is nothing to draw.
const panels = {};

function startRun() {
  if (!$("run-tool")) return;
  $("run-tool").hidden = false;
  const select = $("run-run"), shows = new Map();

  function controls() {
    choices(select, data.runs.map((r) => [r.folder, r.name]), state.run || (data.runs[0] || {}).folder);
  }

  async function draw() {
    const run = runOf(state.run);
    if (!run) return;
    select.value = run.folder;
    const facts = [["method", run.method], ["state", run.why ? `${run.state}: ${run.why}` : run.state], ["sweep", run.sweep], ["seed", run.seed],
      ["last sign of life", run.sign], ["remaining", run.left], ["rounds", run.planned ? `${run.rounds} of ${run.planned}` : run.rounds], ["tags", run.tags.join(", ")], ["folder", run.folder],
      ...data.metrics.map((m, i) => [m.title, lastOfCurve(run, i) == null ? "" : formatValue(lastOfCurve(run, i), m.unit) + (m.unit === "%" ? " %" : "")])];
    const shown = (list) => list.filter(([, v]) => v !== "" && v != null).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, String(v))));
    $("run-facts").replaceChildren(...shown(facts));
    const details = (await detailsOf(run)) || {};
    if (runOf(state.run) !== run) return;
    $("run-facts").replaceChildren(...shown([...facts, ...(details.facts || []).map((f) => [f.Name, f.Value])]));
    for (const box of document.querySelectorAll("[data-panel]")) {
      const name = box.dataset.panel;
      box.hidden = false; // a chart has the size of its box
      if (!shows.has(name)) shows.set(name, panels[name](box));
      box.hidden = shows.get(name)(details[name] ?? null, run) === false;
    }
  }

  select.addEventListener("change", () => choose({ run: select.value }));
  watch((changed) => {
    if (changed.includes("data")) controls();
    if (changed.some((k) => ["data", "run", "theme"].includes(k))) draw();
  });
  controls();
  draw();
}
