// Keys for the whole page, where nothing is being typed.
const keyHelp = [["/", "filter the runs"], ["r", "runs"], ["c", "curves"], ["o", "one run"], ["d", "configurations"], ["j, k", "next and previous run"], ["l", "logarithmic values"], ["t", "light or dark"], ["?", "these keys"]];

function startKeys() {
  const help = $("keys");
  help.querySelector("dl").replaceChildren(...keyHelp.map(([k, what]) => el("div", {}, el("dt", {}, el("kbd", {}, k)), el("dd", {}, what))));
  const step = (by) => {
    const runs = found(), at = runs.findIndex((r) => r.folder === (state.run || (data.runs[0] || {}).folder));
    if (runs.length) choose({ run: runs[Math.min(Math.max(at + by, 0), runs.length - 1)].folder });
  };
  const actions = {
    "/": () => { goTo("runs"); $("runs-find")?.focus(); }, r: () => goTo("runs"), c: () => goTo("curves"), o: () => goTo("run"), d: () => goTo("configuration"),
    j: () => step(1), k: () => step(-1), l: () => choose({ logy: state.logy ? "" : "1" }), t: () => $("theme").click(), "?": () => help.showModal(),
  };
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey || e.target.closest("input, select, textarea, dialog") || !actions[e.key]) return;
    e.preventDefault();
    actions[e.key]();
  });
  $("keys-open").hidden = false;
  $("keys-open").addEventListener("click", () => help.showModal());
}
