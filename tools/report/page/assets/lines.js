// A line is {key, name, colour, dash, width, x, y, low, high}: low and high bound its band, null without one.
// x is the place of its rounds in the data block.

function curveOf(owner, metric) {
  return owner.curves.find((c) => c.m === metric);
}

function groupLines(data, metric) {
  return data.groups.map((g, i) => {
    const c = curveOf(g, metric);
    return c && styled(i, {
      key: "g" + i, name: g.name, x: c.x, y: c.y, seeds: g.runs.length,
      low: c.s ? c.y.map((v, k) => v - c.s[k]) : null,
      high: c.s ? c.y.map((v, k) => v + c.s[k]) : null,
    });
  }).filter(Boolean);
}

function runLines(data, metric) {
  return data.runs.map((r, i) => {
    const c = curveOf(r, metric);
    return c && styled(i, { key: "r" + i, name: r.name, x: c.x, y: c.y, low: null, high: null });
  }).filter(Boolean);
}

// clientLines has a line per client of a run, coloured by what the clients differ in, and their mean.
function clientLines(data, run) {
  const r = data.runs[run];
  const part = r.part >= 0 ? data.parts[r.part] : null;
  const kind = part ? kindOf(part) : null;
  const lines = r.clients.y.map((y, k) => {
    const client = part && part.clients[k];
    const line = styled(kind ? kind.place(client) : k, { key: "c" + k, name: clientName(client, k), x: r.clients.x, y, low: null, high: null });
    if (kind) line.dash = [];
    line.width = 1.25;
    return line;
  });
  const mean = curveOf(r, r.clients.m);
  if (mean) lines.unshift({ key: "mean", name: "all clients", x: mean.x, y: mean.y, low: null, high: null, colour: cssColour("--text"), dash: [], width: 3 });
  return lines;
}

function styled(i, line) {
  return Object.assign(line, { colour: lineColour(i), dash: lineDash(i), width: 2 });
}

function clientName(client, k) {
  return ["client " + k, client && client.d, client && client.b].filter(Boolean).join(" · ");
}

// kindOf says by what clients are coloured: domain, else backbone, where there are several.
function kindOf(part) {
  for (const field of ["d", "b"]) {
    const names = [...new Set(part.clients.map((c) => c[field]))];
    if (names.length > 1) return { field, names, place: (c) => names.indexOf(c[field]) };
  }
  return null;
}
