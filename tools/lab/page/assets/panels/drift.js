// How long the update of each client is, and how far it points where the mean of all updates points.
panels.drift = (box) => {
  const plots = {}, row = el("div", { class: "run-parts" }), lazy = el("div", { class: "lazy" });
  for (const [key, what] of [["norm", "norm of a client's update"], ["cosine", "cosine to the mean update"]]) {
    const host = el("div", { id: "drift-" + key, class: "plot small", role: "img", "aria-label": `${sentence(what)}, by round` });
    row.append(el("div", {}, el("p", { class: "axis" }, `${what}, by round`), host));
    plots[key] = new Chart(host, () => {});
  }
  box.append(row, el("details", { id: "drift-data" }, el("summary", {}, "Last updates as a table"), lazy));
  return (drift, run) => {
    if (!drift) return false;
    for (const key of Object.keys(plots)) {
      const lines = drift.map((d) => ({ ...clientLine(run, d.client), x: d.rounds, y: d[key] }));
      plots[key].draw(lines, lines, "", {});
    }
    const last = (list) => { const v = list[list.length - 1]; return v == null ? "–" : { text: formatValue(v, ""), key: v }; };
    lazy.replaceChildren(makeTable("Last updates of clients", [{ name: "client", text: true }, { name: "round" }, { name: "norm" }, { name: "cosine to the mean" }],
      drift.map((d) => {
        const line = clientLine(run, d.client);
        return [{ text: line.name, key: d.client, swatch: swatch(line) }, last(d.rounds), last(d.norm), last(d.cosine)];
      })));
  };
};
