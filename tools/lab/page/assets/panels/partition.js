// The examples of each client by class.
const splits = { train: "training", val: "validation", test: "test" };
const orders = { number: "number", domain: "domain", backbone: "backbone", size: "number of examples" };

panels.partition = (box) => {
  const [split, form, order] = ["split", "form", "order"].map((name) => el("select", { id: "partition-" + name, onchange: (e) => choose({ [name]: e.target.value }) }));
  const { grid, host, read, key, table, lazy } = gridPanel(box, "partition", [labelled("Examples", split), labelled("Show as", form), labelled("Order by", order)],
    ["A column is a client, a row a class. Point at a cell, or use the arrow keys, ", el("kbd", {}, "Home"), " and ", el("kbd", {}, "End"), ", to read it."], "Clients as a table", say);
  let run, part, view, totals;

  function redraw() {
    const counts = part.clients.map((c) => countsOf(c[split.value]));
    totals = counts.map((list) => list.reduce((sum, [, n]) => sum + n, 0));
    let largest = 1;
    for (const list of counts) for (const [, n] of list) largest = Math.max(largest, n);
    const strips = ["domain", "backbone"].map((f) => stripOf(part, f)).filter(Boolean);
    const clients = part.clients.map((_, k) => k).sort((a, b) => {
      if (order.value === "size") return totals[b] - totals[a] || a - b;
      if (order.value === "number") return a - b;
      return collator.compare(part.clients[a][order.value] ?? "", part.clients[b][order.value] ?? "") || a - b;
    });
    view = {
      clients, classes: part.classes, counts, largest, form: form.value,
      colour: (share) => (form.value === "cells" ? mapColour(share) : groupColour(1)),
      strips: strips.map((t) => (k) => t.colour(part.clients[k])),
    };
    grid.draw(view);
    explain(strips, largest);
    say(null);
    host.setAttribute("aria-label", `Examples of ${part.classes.length} classes that ${part.clients.length} clients hold; arrow keys read the counts`);
  }

  function explain(strips, largest) {
    const name = splits[split.value];
    const entries = strips.flatMap((t) => [el("span", {}, orders[t.field] + ":"), ...t.names.map((n) => el("span", {}, swatch({ colour: t.colour({ [t.field]: n }), width: 6, dash: [] }), n || "none"))]);
    const sizes = form.value === "cells" ? mapKey("0", `${largest} ${name} examples`) : el("span", {}, `Largest circle: ${largest} ${name} examples`);
    key.replaceChildren(sizes, ...entries);
  }

  function say(i, cls) {
    if (!part) return;
    const name = splits[split.value];
    if (i === null) {
      const sum = totals.reduce((a, b) => a + b, 0);
      read.textContent = `${part.clients.length} clients, ${part.classes.length} classes, ${sum.toLocaleString("en")} ${name} examples`;
      return;
    }
    const k = view.clients[i];
    const found = view.counts[k].find(([c]) => c === cls);
    read.textContent = `${sentence(clientName(part.clients[k], k))}: ${found ? found[1] : 0} of ${part.classes[cls]}, of ${totals[k]} ${name} examples`;
  }

  const has = () => Object.keys(splits).filter((s) => part.clients.some((c) => c[s]));

  // list writes a row per client, with the last value of every run on this partition.
  function list() {
    const known = has(), fields = ["domain", "backbone"].filter((f) => part.clients.some((c) => c[f]));
    const metric = (r) => data.metrics.find((m) => m.name === r.clients.metric);
    const runs = [run, ...data.runs.filter((r) => r !== run && r.part === run.part)].filter((r) => r.clients).slice(0, 12);
    const columns = [{ name: "client" }, ...fields.map((name) => ({ name, text: true })), ...known.map((s) => ({ name: splits[s] })), { name: "classes" },
      { name: "most examples of", text: true }, ...runs.map((r) => ({ name: `${r.name}: last ${metric(r).title.toLowerCase()}` }))];
    const rows = part.clients.map((c, k) => {
      const first = countsOf(c[known[0]]);
      const top = [...first].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 4);
      return [{ text: k, key: k }, ...fields.map((f) => c[f] ?? ""), ...known.map((s) => number(countsOf(c[s]).reduce((sum, [, n]) => sum + n, 0))), number(first.length),
        top.map(([cls, n]) => `${part.classes[cls]} ${n}`).join(", "),
        ...runs.map((r) => { const v = r.clients.y[k] && lastOf(r.clients.y[k]); return v == null ? "" : { text: formatValue(v, metric(r).unit), key: v }; })];
    });
    lazy.replaceChildren(makeTable("Clients", columns, rows));
  }

  table.addEventListener("toggle", () => { if (table.open && part) list(); });
  watch((changed) => { if (part && changed.some((k) => ["split", "form", "order"].includes(k))) redraw(); });
  return (_, shown) => {
    run = shown;
    part = data.parts[run.part];
    if (!part) return false;
    const known = has();
    choices(split, known.map((s) => [s, splits[s]]), known.includes(state.split) ? state.split : known[0]);
    choices(form, [["bubbles", "bubbles"], ["cells", "cells"]], state.form);
    const kinds = Object.entries(orders).filter(([f]) => !["domain", "backbone"].includes(f) || new Set(part.clients.map((c) => c[f])).size > 1);
    choices(order, kinds, kinds.some(([f]) => f === state.order) ? state.order : "number");
    redraw();
    if (table.open) list();
  };
};

// countsOf lists classes with examples and their numbers.
const countsOf = (list) => (list || []).map((n, cls) => [cls, n]).filter(([, n]) => n);

// stripOf colours clients by a field in which they differ.
function stripOf(part, field) {
  const names = [...new Set(part.clients.map((c) => c[field]))];
  return names.length < 2 ? null : { field, names, colour: (c) => groupColour(names.indexOf(c[field])) };
}
