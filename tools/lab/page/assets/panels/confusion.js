// Confusion matrices: how often which class was taken for which, and the accuracy of each class.
panels.confusion = (box) => {
  const view = el("select", { id: "confusion-view" }), choice = labelled("Evaluation", view);
  const part = gridPanel(box, "confusion", [choice], ["A row is a class, a column the predicted class. Point at a cell, or use the arrow keys, to read it."], "Classes as a table", read);
  let c, counts, of, totals;

  function draw() {
    const views = ["global", "personal"].filter((v) => c[v]), n = c.classes.length;
    const chosen = views.includes(state.view) ? state.view : views[0];
    choices(view, views.map((v) => [v, v]), chosen);
    choice.hidden = views.length < 2;
    const by = Object.fromEntries(views.map((v) => {
      const t = Array(n).fill(0), correct = Array(n).fill(0);
      for (const [a, b, k] of c[v].counts || []) { t[a] += k; if (a === b) correct[a] += k; }
      return [v, { t, correct }];
    }));
    counts = c[chosen].counts || [];
    totals = by[chosen].t;
    of = new Map(counts.map(([a, b, k]) => [a * n + b, k]));
    const shares = c.classes.map(() => []);
    for (const [a, b, k] of counts) shares[b].push([a, k / totals[a]]);
    part.grid.draw({ clients: c.classes.map((_, i) => i), classes: c.classes, names: c.classes, whole: (cls) => totals[cls] > 0, counts: shares, largest: 1, form: "cells", strips: [], colour: mapColour });
    part.key.replaceChildren(mapKey("0", "1, share of the class"));
    read(null);
    part.host.setAttribute("aria-label", `Confusion matrix of ${n} classes; arrow keys read it`);
    const mistaken = (a) => counts.filter(([x, y]) => x === a && y !== a).sort((x, y) => y[2] - x[2]).slice(0, 3).map(([, y, k]) => `${c.classes[y]} ${k}`).join(", ");
    part.lazy.replaceChildren(makeTable("Classes", [{ name: "class", text: true }, { name: "test examples" }, ...views.map((v) => ({ name: `${v} accuracy (%)` })), { name: "most often predicted as", text: true }],
      c.classes.map((name, a) => [name, number(totals[a]), ...views.map((v) => (by[v].t[a] ? { text: ((100 * by[v].correct[a]) / by[v].t[a]).toFixed(2), key: by[v].correct[a] / by[v].t[a] } : "–")), mistaken(a)])));
  }

  function read(taken, cls) {
    if (!c) return;
    if (taken === null) {
      const all = totals.reduce((a, b) => a + b, 0), correct = counts.reduce((a, [x, y, k]) => a + (x === y ? k : 0), 0);
      part.read.textContent = `${c.classes.length} classes, ${all.toLocaleString("en")} test examples, ${view.value} accuracy ${((100 * correct) / Math.max(1, all)).toFixed(2)} %`;
      return;
    }
    part.read.textContent = `${c.classes[cls]} predicted as ${c.classes[taken]}: ${of.get(cls * c.classes.length + taken) || 0} of ${totals[cls]}`;
  }

  view.addEventListener("change", () => choose({ view: view.value }));
  watch((changed) => { if (c && changed.includes("view")) draw(); });
  return (confusion) => {
    c = confusion;
    if (!c) return false;
    draw();
  };
};
