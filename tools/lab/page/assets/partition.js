const splits = [["0", "training"], ["1", "validation"], ["2", "test"]];
const orders = { number: "number", d: "domain", b: "backbone", size: "number of examples" };

function startPartition() {
  if (!$("partition-tool")) return;
  const split = $("partition-split"), form = $("partition-form"), order = $("partition-order");
  let view, totals;
  const grid = new Grid($("partition-grid"), read);
  const details = $("partition-data");
  const part = () => { const run = runOf(state.run); return run && run.part >= 0 ? data.parts[run.part] : null; };

  // rechoose offers what the chosen partition has.
  function rechoose() {
    const p = part();
    $("partition-tool").hidden = !p;
    if (!p) return;
    const has = splits.filter(([s]) => p.clients.some((c) => c.n[s]));
    choices(split, has, has.some(([s]) => s === state.split) ? state.split : has.length ? has[0][0] : "");
    form.value = state.form;
    const kinds = Object.entries(orders).filter(([f]) => f.length > 1 || new Set(p.clients.map((c) => c[f])).size > 1);
    choices(order, kinds, kinds.some(([f]) => f === state.order) ? state.order : "number");
    redraw();
    if (details.open) list();
  }

  function redraw() {
    const p = part(), s = split.value;
    const counts = p.clients.map((c) => pairsOf(c.n[s]));
    totals = counts.map((list) => list.reduce((sum, [, n]) => sum + n, 0));
    let largest = 1;
    for (const list of counts) for (const [, n] of list) largest = Math.max(largest, n);
    const strips = ["d", "b"].map((f) => stripOf(p, f)).filter(Boolean);
    const clients = p.clients.map((_, k) => k).sort((a, b) => {
      if (order.value === "size") return totals[b] - totals[a] || a - b;
      if (order.value === "number") return a - b;
      return collator.compare(p.clients[a][order.value], p.clients[b][order.value]) || a - b;
    });
    view = {
      clients, classes: p.classes, counts, largest, form: form.value,
      colour: (share) => (form.value === "cells" ? mapColour(share) : groupColour(1)),
      strips: strips.map((t) => (k) => t.colour(p.clients[k])),
    };
    grid.draw(view);
    key(strips, largest);
    read(null);
    $("partition-grid").setAttribute("aria-label", `Examples of ${p.classes.length} classes that ${p.clients.length} clients hold; arrow keys read the counts`);
  }

  function key(strips, largest) {
    const name = splits[Number(split.value)][1];
    const entries = strips.flatMap((t) => [el("span", {}, orders[t.field] + ":"), ...t.names.map((n) => el("span", {}, swatch({ colour: t.colour({ [t.field]: n }), width: 6, dash: [] }), n || "none"))]);
    const sizes = form.value === "cells" ? mapKey("0", `${largest} ${name} examples`) : el("span", {}, `Largest circle: ${largest} ${name} examples`);
    $("partition-key").replaceChildren(sizes, ...entries);
  }

  function read(i, cls) {
    const p = part(), name = splits[Number(split.value)][1];
    if (i === null) {
      const sum = totals.reduce((a, b) => a + b, 0);
      $("partition-read").textContent = `${p.clients.length} clients, ${p.classes.length} classes, ${sum.toLocaleString("en")} ${name} examples`;
      return;
    }
    const k = view.clients[i];
    const found = view.counts[k].find(([c]) => c === cls);
    $("partition-read").textContent = `${sentence(clientName(p.clients[k], k))}: ${found ? found[1] : 0} of ${p.classes[cls]}, of ${totals[k]} ${name} examples`;
  }

  // list writes a row per client, with the last value of every run on this partition.
  function list() {
    const p = part();
    const has = splits.filter(([s]) => p.clients.some((c) => c.n[s]));
    const fields = [["d", "domain"], ["b", "backbone"]].filter(([f]) => p.clients.some((c) => c[f]));
    const shown = runOf(state.run);
    const runs = [shown, ...data.runs.filter((r) => r !== shown && r.part === shown.part)].filter((r) => r.clients).slice(0, 12);
    const columns = [{ name: "client" }, ...fields.map(([, name]) => ({ name, text: true })), ...has.map(([, name]) => ({ name })), { name: "classes" },
      { name: "most examples of", text: true }, ...runs.map((r) => ({ name: `${r.name}: last ${data.metrics[r.clients.m].title.toLowerCase()}` }))];
    const rows = p.clients.map((c, k) => {
      const first = pairsOf(c.n[has.length ? has[0][0] : 0]);
      const top = [...first].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 4);
      return [{ text: k, key: k }, ...fields.map(([f]) => c[f]), ...has.map(([s]) => number(pairsOf(c.n[s]).reduce((sum, [, n]) => sum + n, 0))), number(first.length),
        top.map(([cls, n]) => `${p.classes[cls]} ${n}`).join(", "),
        ...runs.map((r) => { const v = r.clients.y[k] && lastOf(r.clients.y[k]); return v == null ? "" : { text: formatValue(v, data.metrics[r.clients.m].unit), key: v }; })];
    });
    details.querySelector(".lazy").replaceChildren(makeTable("Clients", columns, rows));
  }

  for (const [name, s] of Object.entries({ split, form, order })) s.addEventListener("change", () => choose({ [name]: s.value }));
  details.addEventListener("toggle", () => { if (details.open && part()) list(); });
  watch((changed) => {
    if (changed.some((k) => ["run", "data"].includes(k))) rechoose();
    else if (part() && changed.some((k) => ["split", "form", "order", "theme"].includes(k))) redraw();
  });
  $("partition-grid").addEventListener("blur", () => grid.leave());
  rechoose();
}

const number = (n) => ({ text: n.toLocaleString("en"), key: n });
const sentence = (text) => text[0].toUpperCase() + text.slice(1);

// pairsOf reads class, count, class, count.
function pairsOf(list) {
  const out = [];
  for (let i = 0; list && i < list.length; i += 2) out.push([list[i], list[i + 1]]);
  return out;
}

// stripOf colours clients by a field in which they differ.
function stripOf(part, field) {
  const names = [...new Set(part.clients.map((c) => c[field]))];
  return names.length < 2 ? null : { field, names, colour: (c) => groupColour(names.indexOf(c[field])) };
}
