// Up to this many lines are all shown at first; of more, the first few.
const manyLines = 24, firstLines = 10;

function startCurves(data) {
  if (!$("curves-tool")) return;
  const several = data.groups.length < data.runs.length;
  const withClients = data.runs.map((r, i) => [i, r.name]).filter(([i]) => data.runs[i].clients);
  const metrics = data.metrics.map((m, i) => [i, m.title]).filter(([i]) => data.runs.some((r) => curveOf(r, i)));
  const ways = [["groups", several ? "mean over seeds" : "every run"]];
  if (several) ways.push(["runs", "every run"]);
  if (withClients.length) ways.push(["clients", "clients of one run"]);

  const metric = $("curves-metric"), way = $("curves-lines"), run = $("curves-run");
  choices(metric, metrics, metrics[0][0]);
  choices(way, ways, "groups");
  choices(run, withClients, withClients.length ? withClients[0][0] : "");
  $("curves-lines-label").hidden = ways.length < 2;
  $("curves-tool").hidden = false;

  const host = $("curves-chart");
  const chart = new Chart(host, data.x, (range, zoomed) => {
    const [a, b] = [Math.ceil(range[0] - 1e-6), Math.floor(range[1] + 1e-6)];
    $("curves-range").textContent = `rounds ${a}–${b}`;
    Object.assign(host.dataset, { from: range[0], to: range[1], zoomed });
    fill();
  });
  const legend = new Legend($("curves-legend"), $("curves-find"), redraw, (key) => chart.highlight(key));
  const details = $("curves-data");
  const chosen = () => data.metrics[Number(metric.value)];

  function relist() {
    const clients = way.value === "clients";
    $("curves-run-label").hidden = !clients;
    metric.disabled = clients;
    if (clients) metric.value = data.runs[Number(run.value)].clients.m;
    const lines = clients ? clientLines(data, Number(run.value)) : way.value === "runs" ? runLines(data, Number(metric.value)) : groupLines(data, Number(metric.value));
    const listed = way.value + (clients ? run.value : "");
    if (legend.listed !== listed) {
      legend.listed = listed;
      legend.hidden = new Set(!clients && lines.length > manyLines ? lines.slice(firstLines).map((l) => l.key) : []);
      $("curves-find").value = "";
    }
    $("curves-band").hidden = !lines.some((l) => l.low);
    const { title, unit } = chosen();
    $("curves-axis").textContent = unit && unit !== "bytes" ? `${title} (${unit}) by round` : `${title} by round`;
    legend.set(lines, unit);
    document.querySelector("#curves .legendbar .find").hidden = lines.length <= 8;
    redraw();
  }

  function redraw() {
    const shown = legend.shown();
    $("curves-shown").textContent = `${shown.length} of ${legend.lines.length} lines shown`;
    host.setAttribute("aria-label", `Plot of ${chosen().title} by round, ${shown.length} lines`);
    host.dataset.lines = shown.length;
    chart.draw(shown, legend.lines, chosen().unit);
  }

  // fill writes the visible values as a table, when it is open.
  function fill() {
    if (!details.open) return;
    const shown = legend.shown().slice(0, 60), [a, b] = chart.range || chart.full;
    const rows = new Map();
    shown.forEach((line, i) => data.x[line.x].forEach((round, k) => {
      if (round < a || round > b || line.y[k] == null) return;
      if (!rows.has(round)) rows.set(round, []);
      rows.get(round)[i] = line.y[k];
    }));
    const unit = chosen().unit;
    const body = [...rows.keys()].sort((x, y) => x - y).map((round) => [{ text: round, key: round },
      ...shown.map((_, i) => { const v = rows.get(round)[i]; return v == null ? "" : { text: formatValue(v, unit), key: v }; })]);
    const table = makeTable(chosen().title + " by round", [{ name: "round" }, ...shown.map((l) => ({ name: l.name }))], body);
    const cut = legend.shown().length - shown.length;
    details.querySelector(".lazy").replaceChildren(table, cut > 0 ? el("p", { class: "note" }, `${cut} more lines are shown but not listed here.`) : "");
  }

  for (const s of [metric, way, run]) s.addEventListener("change", relist);
  details.addEventListener("toggle", fill);
  $("curves-all").addEventListener("click", () => legend.all(true));
  $("curves-none").addEventListener("click", () => legend.all(false));
  document.addEventListener("themechange", relist);
  relist();
  startZoom(chart, document.querySelectorAll("#curves [data-zoom]"));
}
