// Chart draws lines into a box with uPlot and shows the values under the pointer. onRange is told the visible rounds.
class Chart {
  constructor(host, xs, onRange) {
    Object.assign(this, { host, xs, onRange, range: null, full: [0, 1] });
    this.tip = el("div", { class: "tip", hidden: true });
    this.heard = el("div", { class: "heard", role: "status" });
    host.append(this.tip, this.heard);
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(host);
  }

  size() {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  // draw replaces what is drawn and keeps the visible rounds. all are the lines that could be shown; they fix the whole range.
  draw(lines, all, unit) {
    this.unit = unit;
    this.full = this.extent(all);
    if (this.range && (this.range[0] >= this.full[1] || this.range[1] <= this.full[0])) this.range = null;
    if (this.plot) this.plot.destroy();
    this.tip.hidden = true;
    const { data, series, bands, main } = this.assemble(lines);
    this.main = main;
    const text = cssColour("--muted"), grid = { stroke: cssColour("--line"), width: 1 };
    const font = `12px ${getComputedStyle(this.host).fontFamily}`;
    const axis = { stroke: text, font, grid, ticks: { ...grid, size: 5 } };
    this.plot = new uPlot({
      ...this.size(), series, bands, legend: { show: false }, focus: { alpha: 0.15 },
      padding: [10, 14, 0, 0],
      scales: {
        x: { time: false, range: () => this.range || this.full },
        y: { range: (u, min, max) => (min == null ? [0, 1] : uPlot.rangeNum(min, max, 0.08, true)) },
      },
      axes: [
        { ...axis, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
        { ...axis, size: (u, values) => 16 + 7 * Math.max(3, ...(values || []).map((v) => v.length)), values: (u, ticks) => ticks.map((v) => formatTick(v, unit)) },
      ],
      cursor: {
        move: (u, left, top) => [left < 0 || !u.data[0].length ? left : u.valToPos(u.data[0][u.posToIdx(left)], "x"), top], // the line stands on a round
        drag: { x: true, y: false, dist: 6 }, points: { size: 7 }, y: false,
      },
      hooks: {
        setSelect: [(u) => this.select(u)],
        setCursor: [(u) => this.point(u)],
      },
    }, data, this.host);
    // The page, not uPlot, holds the range: a drag is turned into one, a double click takes it back.
    this.plot.over.addEventListener("dblclick", () => this.show(null));
    this.plot.over.addEventListener("mousedown", () => this.host.focus({ preventScroll: true, focusVisible: false }));
    this.tell();
  }

  extent(lines) {
    let low = Infinity, high = -Infinity;
    for (const at of new Set(lines.map((l) => l.x))) {
      const rounds = this.xs[at];
      if (rounds.length) {
        low = Math.min(low, rounds[0]);
        high = Math.max(high, rounds[rounds.length - 1]);
      }
    }
    if (low > high) return [0, 1];
    return low === high ? [low - 1, high + 1] : [low, high];
  }

  // assemble puts lines that share their rounds side by side and joins the rest.
  assemble(lines) {
    const tables = new Map(), series = [{}], bands = [], main = [];
    const byRounds = [...lines].sort((a, b) => a.x - b.x);
    for (const line of byRounds) {
      if (!tables.has(line.x)) tables.set(line.x, [this.xs[line.x]]);
      const table = tables.get(line.x);
      if (line.low) {
        bands.push({ series: [series.length, series.length + 1], fill: line.colour + "2e" });
        for (const edge of [line.high, line.low]) {
          table.push(edge);
          series.push({ width: 0, points: { show: false } });
        }
      }
      table.push(line.y);
      main.push({ at: series.length, line });
      const dots = lines.length <= 8 ? 24 : 2; // dots only where there is room for them
      series.push({ stroke: line.colour, width: line.width, dash: line.dash, points: { size: 5, show: (u, at, from, to) => to - from < dots } });
    }
    const list = [...tables.values()];
    const data = list.length === 0 ? [[]] : list.length === 1 ? list[0] : uPlot.join(list);
    return { data, series, bands, main };
  }

  select(u) {
    const { left, width } = u.select;
    if (width < 6) return;
    const a = u.posToVal(left, "x"), b = u.posToVal(left + width, "x");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.show([a, b]);
  }

  // show makes rounds visible, kept inside the data and at least two rounds wide; null is everything.
  show(range) {
    const [low, high] = this.full;
    if (range) {
      const span = Math.min(high - low, Math.max(range[1] - range[0], Math.min(2, high - low)));
      const from = Math.min(Math.max((range[0] + range[1] - span) / 2, low), high - span);
      range = span >= high - low - 1e-9 ? null : [from, from + span];
    }
    this.range = range;
    const [min, max] = this.range || this.full;
    this.plot.setScale("x", { min, max });
    this.tip.hidden = true;
    this.tell();
  }

  tell() {
    this.onRange(this.range || this.full, this.range !== null);
  }

  // highlight dims all lines but one; null ends it.
  highlight(key) {
    const found = key && this.main.find((m) => m.line.key === key);
    this.plot.setSeries(found ? found.at : null, { focus: true });
  }

  // values of a round, largest first.
  values(u, i) {
    const list = [];
    for (const { at, line } of this.main) {
      const v = u.data[at][i];
      if (v != null) list.push({ line, v });
    }
    return list.sort((a, b) => b.v - a.v);
  }

  point(u) {
    const { idx, left, top } = u.cursor;
    const list = idx == null || left < 0 ? [] : this.values(u, idx);
    this.tip.hidden = list.length === 0;
    if (this.tip.hidden) return;
    let near = 0;
    list.forEach(({ v }, i) => {
      if (Math.abs(u.valToPos(v, "y") - top) < Math.abs(u.valToPos(list[near].v, "y") - top)) near = i;
    });
    const most = 9;
    const start = Math.max(0, Math.min(near - 4, list.length - most));
    const rows = list.slice(start, start + most).map(({ line, v }, i) =>
      el("div", { class: start + i === near ? "near" : "" }, swatch(line), el("span", {}, line.name), el("span", {}, formatValue(v, this.unit))));
    const more = list.length - rows.length;
    this.tip.replaceChildren(el("b", {}, "Round " + u.data[0][idx]), ...rows, more > 0 ? el("span", {}, `${more} more`) : "");
    this.place(u, left, top);
  }

  place(u, left, top) {
    const right = left > u.over.clientWidth / 2;
    const x = u.over.offsetLeft + left + (right ? -12 - this.tip.offsetWidth : 12);
    const y = u.over.offsetTop + Math.min(Math.max(top - this.tip.offsetHeight / 2, 0), Math.max(0, u.over.clientHeight - this.tip.offsetHeight));
    this.tip.style.left = Math.max(0, x) + "px";
    this.tip.style.top = y + "px";
  }

  // read moves the pointer line to the next or the previous round and says its values.
  read(step) {
    const u = this.plot, rounds = u.data[0];
    const [low, high] = this.range || this.full;
    const inside = rounds.map((x, i) => i).filter((i) => rounds[i] >= low && rounds[i] <= high);
    if (!inside.length) return;
    const now = u.cursor.left >= 0 && u.cursor.idx != null ? inside.indexOf(u.cursor.idx) : step > 0 ? -1 : inside.length;
    const i = inside[Math.min(Math.max(now + step, 0), inside.length - 1)];
    const list = this.values(u, i);
    u.setCursor({ left: u.valToPos(rounds[i], "x"), top: list.length ? u.valToPos(list[0].v, "y") : 0 });
    this.heard.textContent = `Round ${rounds[i]}: ` + list.slice(0, 9).map(({ line, v }) => `${line.name} ${formatValue(v, this.unit)}`).join(", ");
  }

  clear() {
    this.plot.setCursor({ left: -10, top: -10 });
  }
}

const svgSpace = "http://www.w3.org/2000/svg";

// swatch is a short piece of a line.
function swatch(line) {
  const svg = document.createElementNS(svgSpace, "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 24 10");
  svg.setAttribute("aria-hidden", "true");
  const stroke = document.createElementNS(svgSpace, "path");
  for (const [k, v] of Object.entries({ d: "M0 5H24", fill: "none", stroke: line.colour, "stroke-width": Math.max(2, line.width), "stroke-dasharray": line.dash.join(" ") || "none" })) {
    stroke.setAttribute(k, v);
  }
  svg.append(stroke);
  return svg;
}
