// Settings against a metric: a scatter of one setting, and parallel coordinates of all. They show the chosen runs, a point and a line for each.
const mostTexts = 12, mostDimensions = 8;

// A dimension is {name, title, of, numeric, values, log, at, back}: of gives a run's value or null, values are the different ones in order,
// at puts a value on an axis from 0 to 1, back takes a place on a numeric axis to a value.

// dimension measures the values that runs have; null where they do not differ or are too many texts.
function dimension(runs, name, title, given) {
  const of = (r) => { const v = given(r); return v == null || String(v).trim() === "" ? null : v; };
  const texts = [...new Set(runs.map(of).filter((v) => v != null))];
  const numeric = texts.every((v) => Number.isFinite(Number(v)));
  if (texts.length < 2 || (!numeric && texts.length > mostTexts)) return null;
  if (!numeric) {
    const values = texts.map(String).sort(collator.compare), last = values.length - 1;
    return { name, title, of, numeric, values, at: (v) => (values.includes(v) ? values.indexOf(v) / last : NaN) };
  }
  const values = [...new Set(texts.map(Number))].sort((a, b) => a - b), low = values[0], high = values[values.length - 1];
  const log = low > 0 && high >= 100 * low, [to, from] = log ? [Math.log, Math.exp] : [Number, Number];
  return {
    name, title, numeric, values, log, of: (r) => { const v = of(r); return v == null ? null : Number(v); },
    at: (v) => (high > low ? (to(v) - to(low)) / (to(high) - to(low)) : 0.5), back: (p) => from(to(low) + p * (to(high) - to(low))),
  };
}

// incidental tells whether an option differs only between methods, whose defaults differ.
function incidental(runs, d) {
  if (!d.name.startsWith("options.")) return false;
  const values = new Map(), places = ["method", "with"].map((k) => data.keys.indexOf(k));
  return runs.every((r) => {
    const method = places.map((i) => r.settings[i] ?? "").join();
    if (!values.has(method)) values.set(method, d.of(r));
    return values.get(method) === d.of(r);
  });
}

// dimensionsOf lists the settings in which runs differ, axes of sweeps first. A setting that differs exactly where one before it does is
// left out: the keys that an axis sets are the axis. Seeds are no settings.
function dimensionsOf(runs) {
  const out = [];
  for (const name of [...data.axes, "method", ...data.keys]) {
    if (name === "run" || /(^|\.)seed$/.test(name) || out.some((d) => d.name === name)) continue;
    const d = dimension(runs, name, name, (r) => valueOf(r, name));
    if (!d || incidental(runs, d)) continue;
    const known = [...new Set(runs.map(d.of))];
    d.same = runs.map((r) => known.indexOf(d.of(r))).join();
    if (!out.some((b) => b.same === d.same && (b.numeric || !d.numeric))) out.push(d);
  }
  return out;
}

function brushesOfAddress() {
  try {
    return Object(JSON.parse(state.brush || "{}"));
  } catch { // an address that was cut
    return {};
  }
}

// within tells whether a run is inside all brushes.
function within(run, dimensions, brushes) {
  return dimensions.every((d) => {
    const [low, high] = Array.isArray(brushes[d.name]) ? brushes[d.name].map(d.at) : [NaN, NaN], at = d.of(run) == null ? NaN : d.at(d.of(run));
    return !(low <= high) || (at >= low - 1e-9 && at <= high + 1e-9);
  });
}

// Scatter is a chart with points: every line is a run at one place.
class Scatter extends Chart {
  constructor(host, title, open) {
    super(host, () => {});
    Object.assign(this, { title, open });
    host.addEventListener("keydown", (e) => {
      if (e.key === "Enter") this.choose();
      else if (e.key === "ArrowUp" || e.key === "ArrowDown") this.step(e.key === "ArrowUp" ? -1 : 1);
      else return;
      e.preventDefault();
    });
  }

  draw(...given) {
    super.draw(...given);
    let down = 0;
    this.plot.over.addEventListener("mousedown", (e) => (down = e.clientX));
    this.plot.over.addEventListener("click", (e) => { if (Math.abs(e.clientX - down) < 6) this.choose(24); });
  }

  assemble(lines) {
    const out = super.assemble(lines);
    for (const s of out.series.slice(1)) Object.assign(s, { paths: () => null, points: { show: true, size: 9, width: 1.5, stroke: s.stroke, fill: s.stroke + "80" } });
    return out;
  }

  extent(lines) {
    const [low, high] = super.extent(lines);
    if (!this.how.logx) return [low - 0.04 * (high - low), high + 0.04 * (high - low)];
    const pad = (high / low) ** 0.04;
    return [low / pad, high * pad];
  }

  where(x) {
    return `${this.title()} ${super.where(x)}`;
  }

  // nearest gives the runs at the pointer line, and the place of the one that is nearest to the pointer.
  nearest() {
    const u = this.plot, { idx, left, top } = u.cursor, list = idx == null || left < 0 ? [] : this.values(u, idx);
    const far = list.map(({ v }) => Math.abs(u.valToPos(v, "y") - top));
    return { list, at: far.indexOf(Math.min(...far)), far: Math.min(...far), idx };
  }

  step(by) {
    const { list, at, idx } = this.nearest();
    if (!list.length) return;
    const { line, v } = list[Math.min(Math.max(at + by, 0), list.length - 1)], u = this.plot;
    u.setCursor({ left: u.valToPos(u.data[0][idx], "x"), top: u.valToPos(v, "y") });
    this.heard.textContent = `${line.name} ${formatValue(v, this.unit)}`;
  }

  choose(most = Infinity) {
    const { list, at, far } = this.nearest();
    if (list.length && far <= most) this.open(list[at].line.key);
  }
}

function startSettings() {
  if (!$("settings")) return;
  const x = $("settings-x"), y = $("settings-y"), details = $("settings-data");
  const open = (id) => { choose({ run: id }); goTo("run"); };
  const scatter = new Scatter($("settings-chart"), () => x.value, open);
  const parallel = new Parallel($("parallel"), open, (brushes) => choose({ brush: Object.keys(brushes).length ? JSON.stringify(brushes) : "" }));
  startZoom(scatter, []);
  fade($("parallel").parentElement);
  let runs = [], dimensions = [], result = null;

  // measure finds the runs that have the metric, and what they differ in.
  function measure() {
    const chosen = chosenRuns(), metrics = data.metrics.filter((m, i) => chosen.some((r) => lastOfCurve(r, i) != null));
    const metric = metrics.find((m) => m.name === state.result) || metrics[0], at = data.metrics.indexOf(metric);
    const value = (r) => lastOfCurve(r, at);
    runs = metric ? chosen.filter((r) => value(r) != null) : [];
    dimensions = dimensionsOf(runs);
    const settings = dimensions.filter((d) => d.numeric);
    result = metric && dimension(runs, metric.name, metric.title, value);
    const link = document.querySelector('nav a[href="#settings"]').parentElement;
    $("settings").hidden = link.hidden = !settings.length || !result;
    if ($("settings").hidden) return;
    Object.assign(result, { unit: metric.unit, measured: true });
    const most = settings.reduce((a, b) => (b.values.length > a.values.length ? b : a));
    choices(x, settings.map((d) => [d.name, d.title]), (settings.find((d) => d.name === state.setting) || most).name);
    choices(y, metrics.map((m) => [m.name, m.title]), metric.name);
    const shown = [...dimensions.slice(0, mostDimensions), result];
    $("parallel-tool").hidden = dimensions.length < 2;
    $("parallel-tool").parentElement.classList.toggle("stacked", dimensions.length > 5);
    if (dimensions.length > 1) parallel.draw(runs, shown, brushesOfAddress());
    $("parallel-left").hidden = dimensions.length <= mostDimensions;
    $("parallel-left").textContent = `The first ${mostDimensions} of ${dimensions.length} settings; filter the runs to see others.`;
    const methods = [...new Set(runs.map((r) => r.method))];
    $("settings-key").replaceChildren(...(methods.length > 1 ? methods.map((m) => el("span", {}, swatch({ colour: runColour({ method: m }), width: 6, dash: [] }), m || "none")) : []));
    redraw();
  }

  const inside = () => runs.filter((r) => within(r, [...dimensions, result], brushesOfAddress()));

  function redraw() {
    const d = dimensions.find((k) => k.name === x.value), kept = inside(), unit = result.unit;
    const points = runs.filter((r) => d.of(r) != null).map((r) => ({ key: r.folder, name: r.name, x: [d.of(r)], y: [result.of(r)], low: null, colour: runColour(r), dash: [], width: 6 }));
    const keys = new Set(kept.map((r) => r.folder)), shown = points.filter((p) => keys.has(p.key));
    scatter.draw(shown, points, unit, { along: { unit: "" }, logx: d.log, logy: result.log, ends: spanOf(points.map((p) => p.y)) });
    $("settings-chart").dataset.points = shown.length;
    $("settings-chart").setAttribute("aria-label", `Plot of ${result.title} by ${d.title}, ${shown.length} runs`);
    $("settings-axis").textContent = `${result.title}${unit && unit !== "bytes" ? ` (${unit})` : ""} of the last round by ${d.title}${d.log ? ", logarithmic" : ""}`;
    parallel.brush(brushesOfAddress());
    const brushed = kept.length < runs.length;
    $("settings-status").textContent = `${kept.length} of ${runs.length} runs`;
    $("settings-clear").hidden = $("settings-only").hidden = !brushed;
    fill();
  }

  function fill() {
    if (!details.open || !result) return;
    const cell = (d, r) => { const v = d.of(r); return v == null ? "" : d.numeric ? { text: formatValue(v, d.unit || ""), key: v } : v; };
    const columns = [{ name: "run", text: true }, ...[...dimensions, result].map((d) => ({ name: d.title + (d.unit === "%" ? " (%)" : ""), text: !d.numeric }))];
    details.querySelector(".lazy").replaceChildren(makeTable("Runs by setting", columns, inside().map((r) => [{ text: r.name, swatch: methodSwatch(r.method) }, ...[...dimensions, result].map((d) => cell(d, r))])));
  }

  x.addEventListener("change", () => choose({ setting: x.value }));
  y.addEventListener("change", () => choose({ result: y.value }));
  details.addEventListener("toggle", fill);
  $("settings-clear").addEventListener("click", () => choose({ brush: "" }));
  $("settings-only").addEventListener("click", () => {
    const kept = new Set(inside().map((r) => r.folder));
    choose({ off: [...new Set([...listed(state.off), ...runs.map((r) => r.folder).filter((id) => !kept.has(id))])].join("|"), brush: "" });
  });
  watch((changed) => {
    if (changed.includes("setting")) scatter.range = null;
    if (changed.some((k) => ["data", "q", "off", "result", "theme"].includes(k))) measure();
    else if (changed.some((k) => ["setting", "brush"].includes(k)) && !$("settings").hidden) {
      if (state.setting) x.value = state.setting;
      redraw();
    }
  });
  measure();
}
