// A line is {key, name, n, unfinished, colour, dash, width, x, y, low, high}: n runs are averaged; low and high bound its band, null
// without one. The runs are finished, unless none of the line's is.

// linesOf gives the lines of some runs: means over groups, every run, or means over the label of an axis. In a facet the
// label of its axis is left out of names, so that lines of one name look the same in all of them.
function linesOf(runs, way, metric, facet) {
  const by = way.startsWith("by:") ? way.slice(3) : null;
  const keyOf = (r) => (way === "runs" ? r.folder : by ? String(valueOf(r, by) ?? "none") : r.experiment);
  const label = (r) => {
    if (by) return String(valueOf(r, by) ?? "none");
    return facet ? without(r, facet, way === "runs") : way === "runs" ? r.name : r.group;
  };
  const all = [...grouped(runs, keyOf).values()], names = grouped(all, (list) => label(list[0]));
  const out = [];
  for (const of of all) {
    const short = label(of[0]), name = names.get(short).length > 1 ? of[0].group : short;
    const done = of.filter((r) => r.state === "done"), unfinished = done.length === 0, averaged = unfinished ? of : done;
    const mean = meanOf(averaged, metric);
    if (!mean) continue;
    const methods = new Set(of.map((r) => r.method));
    out.push(along({
      key: name, name, unfinished, x: mean.x, y: mean.y, n: mean.n, method: methods.size === 1 ? [...methods][0] : "",
      low: mean.s && mean.y.map((v, k) => v - mean.s[k]), high: mean.s && mean.y.map((v, k) => v + mean.s[k]),
    }, averaged));
  }
  return out.filter((l) => l.x.length);
}

// places are the metrics that lines may run along in place of rounds: they grow from round to round.
const places = ["total-bytes", "simulated"];
const placeIndex = () => (places.includes(state.x) ? data.metrics.findIndex((m) => m.name === state.x) : -1);

// along moves a line of some runs from rounds to the mean of what the runs had of the chosen metric by then; a round at which they had
// no more than before is left out.
function along(line, runs) {
  const m = placeIndex();
  if (m < 0) return line;
  const at = meanOf(runs, m), keep = [], x = [];
  line.x.forEach((round, k) => {
    const v = at ? between(at, round) : null;
    if (v == null || (x.length && v <= x[x.length - 1])) return;
    keep.push(k);
    x.push(v);
  });
  const kept = (list) => list && keep.map((k) => list[k]);
  return { ...line, x, y: kept(line.y), low: kept(line.low), high: kept(line.high) };
}

// between is a curve's value at a round, on a straight line between two that it has; null outside them.
function between(curve, round) {
  const i = curve.x.findIndex((x) => x >= round);
  if (i < 0 || (i === 0 && curve.x[0] > round)) return null;
  if (curve.x[i] === round) return curve.y[i];
  const share = (round - curve.x[i - 1]) / (curve.x[i] - curve.x[i - 1]);
  return curve.y[i - 1] + share * (curve.y[i] - curve.y[i - 1]);
}

// without names a run by its labels, but for one.
function without(run, axis, seeds) {
  const labels = Object.entries(run.labels).filter(([k]) => k !== axis).map(([, v]) => v);
  if (!labels.length || !(axis in run.labels)) labels.push(axis === "method" ? run.group : run.method || run.group);
  if (seeds) labels.push("seed " + run.seed);
  return labels.join(" · ");
}

// colourLines gives every line the colour of its method, whichever other lines are shown, and lines of one colour other
// dashes. A line that is of no single method is grey; where all runs are of one method, each line has its own colour.
function colourLines(lines) {
  const used = new Map(), several = data.methods.length > 1;
  let others = 0;
  for (const line of lines) {
    const grey = several && !line.method;
    const colour = grey ? groupColour(others) : several ? methodColour(line.method) : lineColour(others);
    const before = grey ? others : used.get(colour) || 0;
    if (grey || !several) others++;
    used.set(colour, before + 1);
    Object.assign(line, { colour, dash: dashes[before % dashes.length], width: 2 });
  }
  return lines;
}

const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4]];

// smoothed is the exponential moving average of a line's values, without the pull to 0 at its begin (Kingma and Ba 2015, 2.1).
function smoothed(lines, weight) {
  if (!(weight > 0)) return lines;
  const run = (y) => {
    let sum = 0, n = 0;
    return y && y.map((v) => (v == null ? v : ((sum = sum * weight + (1 - weight) * v), n++, sum / (1 - weight ** n))));
  };
  return lines.map((l) => ({ ...l, y: run(l.y), low: run(l.low), high: run(l.high) }));
}

// clientLines has a grey line per client of a run, by what the clients differ in, and their mean in the colour of the method.
function clientLines(run) {
  const lines = run.clients.y.map((y, k) => ({ ...clientLine(run, k), x: run.clients.x, y }));
  const mean = run.curves.find((c) => c.metric === run.clients.metric);
  if (mean) lines.unshift({ key: "mean", name: "all clients", x: mean.x, y: mean.y, low: null, high: null, colour: runColour(run), dash: [], width: 3 });
  return lines.map((l) => along(l, [run]));
}

// clientLine is how the line of a client looks.
function clientLine(run, k) {
  const part = data.parts[run.part], kind = part && kindOf(part), client = part && part.clients[k];
  const place = kind && client ? kind.place(client) : k;
  return {
    key: "c" + k, name: clientName(client, k), low: null, high: null, width: 1.25, colour: groupColour(place),
    dash: dashes[(kind ? place : Math.floor(k / data.colours.groupsLight.length)) % dashes.length],
  };
}

function clientName(client, k) {
  return ["client " + k, client && client.domain, client && client.backbone].filter(Boolean).join(" · ");
}

// kindOf says by what clients are coloured: domain, else backbone, where there are several.
function kindOf(part) {
  for (const field of ["domain", "backbone"]) {
    const names = [...new Set(part.clients.map((c) => c[field]))];
    if (names.length > 1) return { field, names, place: (c) => names.indexOf(c[field]) };
  }
  return null;
}
