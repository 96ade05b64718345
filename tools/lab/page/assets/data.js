// data is what the server wrote (block.go); a live page replaces it, or single runs of it.
let data = JSON.parse($("data").textContent);

const metricIndex = () => Math.max(0, data.metrics.findIndex((m) => m.name === state.metric));
const curveOf = (run, metric) => run.curves.find((c) => c.metric === data.metrics[metric]?.name);
const runOf = (id) => data.runs.find((r) => r.folder === id) || data.runs[0];

// axes by which runs can be told apart: labels, then what else differs.
function kinds() {
  const out = [...data.axes];
  for (const k of ["method", "sweep", "state", "seed", ...data.keys]) {
    if (!out.includes(k) && new Set(data.runs.map((r) => valueOf(r, k))).size > 1) out.push(k);
  }
  return out.filter((k) => new Set(data.runs.map((r) => valueOf(r, k))).size > 1 || data.runs.length < 2);
}

// valueOf is the value of a run by the name of a label, a property, a metric or a setting; null where it has none.
function valueOf(run, key) {
  if (key in run.labels) return run.labels[key];
  if (key === "tags") return run.tags.join(", ");
  if (["string", "number"].includes(typeof run[key])) return String(run[key]);
  const at = data.keys.indexOf(key);
  if (at >= 0) return run.settings[at];
  const same = data.same.find(([k]) => k === key);
  if (same) return same[1];
  const m = data.metrics.findIndex((x) => x.name === key);
  return m < 0 ? null : lastOfCurve(run, m);
}

function lastOfCurve(run, m) {
  const c = curveOf(run, m);
  return c ? lastOf(c.y) : null;
}

function lastOf(values) {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] != null) return values[i];
  return null;
}

// passes tells whether a run is one of those that words and conditions look for: words=anywhere, key=value, key!=value, key>number; a value with
// blanks stands in quotes.
function passes(run, text) {
  return (text.match(/(?:[^\s"]|"[^"]*"|")+/g) || []).every((word) => {
    const [, key, sign, value] = word.match(/^([^=<>!]+)(!=|<=|>=|=|<|>)(.*)$/) || [];
    if (!sign) {
      const all = [run.name, run.method, run.sweep, run.state, run.folder, ...run.tags, ...Object.values(run.labels)].join(" ").toLowerCase();
      return all.includes(word.replaceAll('"', "").toLowerCase());
    }
    const have = valueOf(run, key);
    const want = value.replaceAll('"', "").toLowerCase(), number = Number(want);
    const is = have == null ? "" : String(have).toLowerCase();
    switch (sign) {
      case "=": return is === want || (is !== "" && want !== "" && Number(is) === number);
      case "!=": return !(is === want || (is !== "" && want !== "" && Number(is) === number));
      case "<": return is !== "" && Number(is) < number;
      case "<=": return is !== "" && Number(is) <= number;
      case ">": return is !== "" && Number(is) > number;
    }
    return is !== "" && Number(is) >= number;
  });
}

const found = () => data.runs.filter((r) => passes(r, state.q));

// chosen are the runs that curves and comparisons show: those found and not switched off.
function chosenRuns() {
  const off = new Set(listed(state.off));
  return found().filter((r) => !off.has(r.folder));
}

// meanStd has the sample standard deviation, which divides by n - 1; null of one value, of which there is none.
function meanStd(values) {
  const n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
  const square = values.reduce((a, v) => a + (v - mean) ** 2, 0);
  return { n, mean, std: n < 2 ? null : Math.sqrt(square / (n - 1)) };
}

// mixed tells whether the values of a metric are of two evaluations, which have no mean.
const mixed = (runs, metric) => !!data.metrics[metric]?.headline && new Set(runs.map((r) => r.view).filter(Boolean)).size > 1;

// meanOf averages one metric of some runs over the rounds in which every one of them has a value; one run has no deviation.
function meanOf(runs, metric) {
  if (mixed(runs, metric)) return null;
  const curves = runs.map((r) => curveOf(r, metric)).filter(Boolean);
  if (!curves.length) return null;
  if (curves.length === 1) return { x: curves[0].x, y: curves[0].y, s: null, n: 1 };
  const at = new Map();
  for (const c of curves) {
    c.x.forEach((round, i) => {
      if (c.y[i] == null) return;
      if (!at.has(round)) at.set(round, []);
      at.get(round).push(c.y[i]);
    });
  }
  const rounds = [...at.keys()].filter((r) => at.get(r).length === curves.length).sort((a, b) => a - b);
  const stats = rounds.map((r) => meanStd(at.get(r)));
  return { x: rounds, y: stats.map((s) => s.mean), s: stats.map((s) => s.std), n: curves.length };
}

// grouped sorts runs by the value of a key, in the order in which these first appear.
function grouped(runs, of) {
  const out = new Map();
  for (const r of runs) {
    const k = of(r) ?? "";
    if (!out.has(k)) out.set(k, []);
    out.get(k).push(r);
  }
  return out;
}

// details of a run: its facts and the data of panels, carried by the page or asked of the server.
async function detailsOf(run) {
  if (run.details || !data.live) return run.details || null;
  const answer = await fetch("details?run=" + encodeURIComponent(run.folder));
  return answer.ok ? answer.json() : null;
}
