// startZoom lets buttons, keys and the wheel move a chart's visible rounds.
function startZoom(chart, buttons) {
  const scale = (factor, at) => {
    const [a, b] = chart.range || chart.full;
    const centre = at == null ? (a + b) / 2 : at;
    chart.show([centre - (centre - a) * factor, centre + (b - centre) * factor]);
  };
  const pan = (share) => {
    if (!chart.range) return;
    const [a, b] = chart.range, step = Math.max(chart.how.along ? 0 : 1, (b - a) * Math.abs(share)) * Math.sign(share);
    const [low, high] = chart.full;
    const move = Math.min(Math.max(step, low - a), high - b);
    chart.show([a + move, b + move]);
  };
  const actions = { in: () => scale(0.6), out: () => scale(1 / 0.6), left: () => pan(-0.25), right: () => pan(0.25), reset: () => chart.show(null) };
  for (const b of buttons) b.addEventListener("click", actions[b.dataset.zoom]);

  const keys = { "+": actions.in, "=": actions.in, "-": actions.out, _: actions.out, ArrowLeft: actions.left, ArrowRight: actions.right, 0: actions.reset, Escape: () => chart.clear() };
  chart.host.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    const reads = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (e.shiftKey && reads) chart.read(reads);
    else if (keys[e.key]) keys[e.key]();
    else return;
    e.preventDefault();
  });

  // The wheel scrolls the page unless the chart was chosen, or Ctrl is held.
  chart.host.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && document.activeElement !== chart.host) return;
    e.preventDefault();
    const over = chart.plot.over.getBoundingClientRect();
    scale(e.deltaY > 0 ? 1.2 : 1 / 1.2, chart.plot.posToVal(e.clientX - over.left, "x"));
  }, { passive: false });
}
