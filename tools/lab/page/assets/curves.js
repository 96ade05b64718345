// Up to this many lines are all shown at first; of more, the first few. Bands are shown by themselves up to fewBands lines.
const manyLines = 24, firstLines = 10, fewBands = 4, mostFacets = 16;

function startCurves() {
  if (!$("curves-tool")) return;
  const metric = $("curves-metric"), way = $("curves-lines"), run = $("curves-run"), facet = $("curves-facet"), place = $("curves-x");
  const host = $("curves-chart"), charts = [];
  const legend = new Legend($("curves-legend"), $("curves-find"), redraw, (key) => charts.forEach((c) => c.highlight(key)));
  const details = $("curves-data");
  const unit = () => (data.metrics[metricIndex()] || { unit: "" }).unit;
  const axis = () => data.metrics[placeIndex()] || null;
  const axisName = () => (axis() ? axis().title : "round");
  let facets = [], restored = false;
  $("curves-tool").hidden = false;

  const withClients = () => data.runs.filter((r) => r.clients).map((r) => [r.folder, r.name]);

  function controls() {
    const several = new Set(data.runs.map((r) => r.experiment)).size < data.runs.length;
    const metrics = data.metrics.filter((m, i) => data.runs.some((r) => curveOf(r, i)));
    choices(metric, metrics.map((m) => [m.name, m.title]), state.metric || (metrics[0] || {}).name);
    const along = metrics.filter((m) => places.includes(m.name));
    choices(place, [["", "rounds"], ...along.map((m) => [m.name, m.title])], state.x);
    $("curves-x-label").hidden = along.length === 0;
    const axes = kinds().filter((k) => k !== "run" && k !== "seed").map((k) => ["by:" + k, `mean by ${k}`]);
    const ways = [["groups", several ? "mean over seeds" : "every run"], ...(several ? [["runs", "every run"]] : []), ...axes];
    if (withClients().length) ways.push(["clients", "clients of one run"]);
    choices(way, ways, ways.some(([w]) => w === state.lines) ? state.lines : "groups");
    choices(run, withClients(), state.run);
    const parts = kinds().filter((k) => { const n = new Set(data.runs.map((r) => valueOf(r, k))).size; return n > 1 && n <= mostFacets; });
    choices(facet, [["", "one plot"], ...parts.map((k) => [k, "a plot per " + k])], state.facet);
    $("curves-smooth").value = state.smooth;
    for (const k of ["logx", "logy"]) $("curves-" + k).checked = state[k] === "1";
  }

  // chartAt is the n-th plot, made when it is first needed.
  function chartAt(n) {
    while (charts.length <= n) {
      const at = charts.length;
      const place = at === 0 ? host : el("div", { class: "plot", tabIndex: 0, role: "application", "aria-describedby": "curves-hint" });
      const cell = at === 0 ? host.parentElement : el("div", {}, el("p", { class: "facet" }), place);
      const title = cell.querySelector(".facet");
      if (at > 0) $("curves-plots").append(cell);
      const chart = new Chart(place, (range, zoomed) => told(chart, range, zoomed));
      Object.assign(chart, { title, cell });
      charts.push(chart);
      startZoom(chart, at === 0 ? document.querySelectorAll("#curves [data-zoom]") : []);
    }
    return charts[n];
  }

  // told moves the other plots along, and keeps the rounds in the address.
  function told(chart, range, zoomed) {
    if (zoomed || chart.range === null) {
      for (const c of charts) if (c !== chart && c.plot && !c.cell.hidden) c.move(chart.range);
    }
    const [a, b] = axis() ? range.map((v) => formatValue(v, axis().unit)) : [Math.ceil(range[0] - 1e-6), Math.floor(range[1] + 1e-6)];
    $("curves-range").textContent = `${axis() ? "" : "rounds "}${a}–${b}`;
    Object.assign(host.dataset, { from: range[0], to: range[1], zoomed });
    state.range = zoomed ? range.map((v) => (axis() ? +v.toPrecision(6) : +v.toFixed(2))).join("~") : "";
    keepAddress();
    fill();
  }

  function relist() {
    const clients = way.value === "clients";
    $("curves-run-label").hidden = !clients;
    metric.disabled = clients;
    facet.disabled = clients;
    let runs = chosenRuns();
    const shown = data.runs.find((r) => r.folder === run.value);
    if (clients && shown) {
      metric.value = shown.clients.metric;
      facets = [{ name: "", lines: clientLines(shown) }];
    } else if (state.facet) {
      facets = [...grouped(runs, (r) => valueOf(r, state.facet))].slice(0, mostFacets).map(([label, of]) => ({
        name: `${state.facet} = ${label === "" ? "none" : label}`, lines: linesOf(of, way.value, metricIndex(), state.facet) }));
    } else {
      facets = [{ name: "", lines: linesOf(runs, way.value, metricIndex(), "") }];
    }
    // one list for the legend: lines of one key are alike in all facets
    const union = new Map();
    for (const f of facets) {
      for (const l of f.lines) {
        const same = union.get(l.key);
        if (!same) union.set(l.key, { ...l });
        else {
          if (same.method !== l.method) same.method = "";
          same.unfinished ||= l.unfinished;
        }
      }
    }
    const lines = [...union.values()];
    if (!clients) colourLines(lines);
    for (const f of facets) {
      f.lines = f.lines.map((l) => { const { colour, dash, width } = union.get(l.key); return { ...l, colour, dash, width }; });
      if (Number(state.smooth) > 0) f.lines = smoothed(f.lines, Number(state.smooth));
    }
    const listed = way.value + state.facet + (clients ? run.value : "");
    if (legend.listed !== listed) {
      legend.listed = listed;
      const before = new Map(), turn = (l) => { before.set(l.method, 1 + (before.get(l.method) || 0)); return before.get(l.method); };
      const inTurn = lines.map((l) => [turn(l), l.key]).sort((a, b) => a[0] - b[0]); // a line of each method, then the second ones
      legend.hidden = new Set(!clients && lines.length > manyLines ? inTurn.slice(firstLines).map(([, key]) => key) : []);
      $("curves-find").value = "";
    }
    const { title } = data.metrics[metricIndex()] || { title: "" };
    $("curves-axis").textContent = unit() && unit() !== "bytes" ? `${title} (${unit()}) by ${axisName()}` : `${title} by ${axisName()}`;
    legend.set(lines, unit());
    document.querySelector("#curves .legendbar .find").hidden = lines.length <= 8;
    redraw();
  }

  function redraw() {
    const shown = legend.shown(), keys = new Set(shown.map((l) => l.key));
    const bands = state.bands === "" ? shown.length <= fewBands : state.bands === "1";
    const some = facets.some((f) => f.lines.some((l) => l.low));
    $("curves-bands").checked = bands;
    $("curves-bands").disabled = !some;
    $("curves-band").hidden = !some || !bands;
    $("curves-shown").textContent = `${shown.length} of ${legend.lines.length} lines shown`;
    $("curves-plots").classList.toggle("several", facets.length > 1);
    // all plots have one range of rounds, and of values too
    const all = facets.flatMap((f) => f.lines), visible = all.filter((l) => keys.has(l.key));
    const ends = facets.length > 1 ? spanOf(visible.flatMap((l) => [l.y, ...(bands && l.low ? [l.low, l.high] : [])])) : null;
    facets.forEach((f, n) => {
      const chart = chartAt(n);
      chart.cell.hidden = false;
      chart.title.textContent = f.name;
      chart.title.hidden = !f.name;
      const lines = f.lines.filter((l) => keys.has(l.key));
      chart.host.setAttribute("aria-label", `Plot of ${(data.metrics[metricIndex()] || {}).title} by ${axisName()}${f.name ? ", " + f.name : ""}, ${lines.length} lines`);
      chart.host.dataset.lines = lines.length;
      if (!restored) chart.range = rangeOfAddress();
      chart.draw(lines, all, unit(), { along: axis(), logx: state.logx === "1", logy: state.logy === "1", bands, ends });
    });
    restored = true;
    charts.slice(facets.length).forEach((c) => (c.cell.hidden = true));
  }

  function rangeOfAddress() {
    const [a, b] = state.range.split("~").map(Number);
    return b > a ? [a, b] : null;
  }

  // fill writes the visible values as a table, when it is open.
  function fill() {
    if (!details.open || facets.length === 0) return;
    const keys = new Set(legend.shown().map((l) => l.key));
    const all = facets.flatMap((f) => f.lines.filter((l) => keys.has(l.key)).map((l) => ({ ...l, name: f.name ? `${f.name}: ${l.name}` : l.name })));
    const shown = all.slice(0, 60), [a, b] = charts[0].range || charts[0].full;
    const rows = new Map();
    shown.forEach((line, i) => line.x.forEach((round, k) => {
      if (round < a || round > b || line.y[k] == null) return;
      if (!rows.has(round)) rows.set(round, []);
      rows.get(round)[i] = line.y[k];
    }));
    const body = [...rows.keys()].sort((x, y) => x - y).map((round) => [{ text: axis() ? formatValue(round, axis().unit) : round, key: round },
      ...shown.map((_, i) => { const v = rows.get(round)[i]; return v == null ? "" : { text: formatValue(v, unit()), key: v }; })]);
    const table = makeTable("Values by " + axisName(), [{ name: axisName() }, ...shown.map((l) => ({ name: l.name }))], body);
    const cut = all.length - shown.length;
    details.querySelector(".lazy").replaceChildren(table, cut > 0 ? el("p", { class: "note" }, `${cut} more lines are shown but not listed here.`) : "");
  }

  metric.addEventListener("change", () => choose({ metric: metric.value }));
  place.addEventListener("change", () => choose({ x: place.value, range: "" }));
  way.addEventListener("change", () => choose({ lines: way.value }));
  run.addEventListener("change", () => choose({ run: run.value }));
  facet.addEventListener("change", () => choose({ facet: facet.value }));
  $("curves-smooth").addEventListener("input", (e) => choose({ smooth: e.target.value }));
  for (const k of ["logx", "logy"]) $("curves-" + k).addEventListener("change", (e) => choose({ [k]: e.target.checked ? "1" : "" }));
  $("curves-bands").addEventListener("change", (e) => choose({ bands: e.target.checked ? "1" : "0" }));
  details.addEventListener("toggle", fill);
  $("curves-all").addEventListener("click", () => legend.all(true));
  $("curves-none").addEventListener("click", () => legend.all(false));
  watch((changed) => {
    if (changed.includes("x")) for (const c of charts) c.range = null;
    if (changed.some((k) => ["data", "metric", "x", "lines", "facet", "smooth", "logx", "logy", "run"].includes(k))) controls();
    if (changed.some((k) => ["data", "q", "off", "metric", "x", "lines", "facet", "smooth", "logx", "logy", "theme"].includes(k)) || (changed.includes("run") && way.value === "clients")) relist();
    else if (changed.includes("bands")) redraw();
  });
  controls();
  relist();
}

// spanOf is the least and the largest of lists of values; null where there is none.
function spanOf(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list) if (v != null) { low = Math.min(low, v); high = Math.max(high, v); }
  return low <= high ? [low, high] : null;
}
