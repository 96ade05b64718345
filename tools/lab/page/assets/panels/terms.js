// Terms of the loss: how long the gradient of each is beside that of cross entropy.
panels.terms = (box) => {
  const table = el("div", { id: "terms-table" });
  const host = el("div", { id: "terms-chart", class: "plot small", role: "img", "aria-label": "Gradient norms of the terms of the loss relative to cross entropy's" });
  box.append(el("p", { class: "axis" }, "gradient norm relative to cross entropy's, by round"), host, table);
  const chart = new Chart(host, () => {});
  return (terms) => {
    if (!terms) return false;
    const lines = terms.map((t, i) => ({ key: t.name, name: t.name, x: t.rounds.map((round) => round + 1), y: t.relative, low: null, high: null, colour: groupColour(i), dash: dashes[i % dashes.length], width: 2 }));
    chart.draw(lines, lines, "", { logy: true });
    const last = (v) => { const x = lastOf(v); return x == null ? "–" : { text: formatValue(x, ""), key: x }; };
    table.replaceChildren(makeTable("Terms of the loss, last round", [{ name: "term", text: true }, { name: "value" }, { name: "gradient norm" }, { name: "relative to cross entropy's" }],
      terms.map((t, i) => [{ text: t.name, swatch: swatch(lines[i]) }, last(t.value), last(t.norm), last(t.relative)])));
  };
};
