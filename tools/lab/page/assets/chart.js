// Chart draws lines into a box with uPlot and shows the values under the pointer. onRange is told the visible rounds.
class Chart {
  constructor(host, onRange) {
    Object.assign(this, { host, onRange, range: null, full: [0, 1], how: {} });
    this.tip = el("div", { class: "tip", hidden: true });
    this.heard = el("div", { class: "heard", role: "status" });
    host.append(this.tip, this.heard);
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(host);
  }

  size() {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  // draw replaces what is drawn and keeps the visible rounds. all are the lines that could be shown; they fix the whole range.
  // how is {along, logx, logy, bands, ends}; along is the metric that the lines run along in place of rounds, ends are a range of values
  // that is wider than that of the lines.
  draw(lines, all, unit, how) {
    Object.assign(this, { unit, how });
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
        x: { time: false, distr: how.logx ? 3 : 1, range: () => this.range || this.full },
        y: how.logy ? { distr: 3, range: (u, min, max) => (min == null ? [0.1, 1] : uPlot.rangeLog(min, max, 10, false)) }
          : { range: (u, min, max) => (min == null ? [0, 1] : spread(...(how.ends || [min, max]))) },
      },
      axes: [
        { ...axis, size: 34, ...(how.along ? { values: (u, ticks) => ticks.map((v) => formatTick(v, how.along.unit)) } : how.logx ? {} : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] }) },
        { ...axis, size: (u, values) => 16 + 7 * Math.max(3, ...(values || []).map((v) => (v || "").length)), values: (u, ticks) => ticks.map((v) => formatTick(v, unit)) },
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
    for (const all of new Set(lines.map((l) => l.x))) {
      const rounds = this.how.logx ? all.filter((x) => x > 0) : all;
      if (rounds.length) {
        low = Math.min(low, rounds[0]);
        high = Math.max(high, rounds[rounds.length - 1]);
      }
    }
    if (low > high) return [0, 1];
    return low === high ? [this.how.logx ? low / 2 : low - 1, high + 1] : [low, high];
  }

  // assemble puts lines that share their rounds side by side and joins the rest. Bands come before all lines, and so lie under
  // them.
  assemble(lines) {
    const series = [{}], bands = [], main = [], columns = [], lists = new Map();
    const drawn = (values) => (this.how.logy ? values.map((v) => (v > 0 ? v : null)) : values);
    const add = (line, values, options) => {
      columns.push([intern(lists, line.x), values]);
      return series.push(options) - 1;
    };
    const byRounds = [...lines].sort((a, b) => a.x.length - b.x.length || a.x[0] - b.x[0]);
    for (const line of this.how.bands ? byRounds.filter((l) => l.low) : []) {
      const floor = (v, k) => (this.how.logy && v <= 0 && line.y[k] > 0 ? line.y[k] * 1e-3 : v);
      const high = add(line, line.high, { width: 0, points: { show: false } });
      bands.push({ series: [high, add(line, line.low.map(floor), { width: 0, points: { show: false } })], fill: line.colour + "2e" });
    }
    const dots = lines.length <= 8 ? 24 : 2; // only where there is room for them
    for (const line of byRounds) {
      const at = add(line, drawn(line.y), { stroke: line.colour, width: line.width, dash: line.dash, points: { size: 5, show: (u, i, from, to) => to - from < dots } });
      main.push({ at, line });
    }
    const rounds = new Set(columns.map(([x]) => x));
    const data = rounds.size === 0 ? [[]] : rounds.size === 1 ? [columns[0][0], ...columns.map(([, y]) => y)] : this.join(columns);
    return { data, series, bands, main };
  }

  // join puts columns of different rounds on all rounds; a round that a line does not have is no gap in it.
  join(columns) {
    const rounds = [...new Set(columns.flatMap(([x]) => x))].sort((a, b) => a - b);
    const place = new Map(rounds.map((x, i) => [x, i]));
    return [rounds, ...columns.map(([x, y]) => {
      const out = Array(rounds.length).fill(undefined);
      x.forEach((round, i) => (out[place.get(round)] = y[i]));
      return out;
    })];
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
      const span = Math.min(high - low, Math.max(range[1] - range[0], this.how.along ? (high - low) / 1000 : Math.min(2, high - low)));
      const from = Math.min(Math.max((range[0] + range[1] - span) / 2, low), high - span);
      range = span >= high - low - 1e-9 ? null : [from, from + span];
    }
    this.move(range);
    this.tell();
  }

  // move makes rounds visible without telling.
  move(range) {
    this.range = range;
    const [min, max] = this.range || this.full;
    this.plot.setScale("x", { min, max });
    this.tip.hidden = true;
  }

  tell() {
    this.onRange(this.range || this.full, this.range !== null);
  }

  // where says a place on the axis.
  where(x) {
    return this.how.along ? formatValue(x, this.how.along.unit) : "Round " + x;
  }

  // highlight dims all lines but one; null ends it.
  highlight(key) {
    const found = key && this.main.find((m) => m.line.key === key);
    if (this.plot) this.plot.setSeries(found ? found.at : null, { focus: true });
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
    this.tip.replaceChildren(el("b", {}, this.where(u.data[0][idx])), ...rows, more > 0 ? el("span", {}, `${more} more`) : "");
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
    this.heard.textContent = `${this.where(rounds[i])}: ` + list.slice(0, 9).map(({ line, v }) => `${line.name} ${formatValue(v, this.unit)}`).join(", ");
  }

  clear() {
    this.plot.setCursor({ left: -10, top: -10 });
  }
}

// spread is the range of an axis around values; one value alone stands in the middle.
const spread = (min, max) => (min === max ? [min - 1, max + 1] : uPlot.rangeNum(min, max, 0.08, true));

// intern makes equal lists of rounds one array of those in lists.
function intern(lists, list) {
  const key = list.length > 2 ? `${list[0]}:${list[1]}:${list.length}:${list[list.length - 1]}` : list.join();
  const same = lists.get(key);
  if (same && same.every((v, i) => v === list[i])) return same;
  lists.set(key, list);
  return list;
}

// swatch is a short piece of a line.
const swatch = (line) => drawing("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" },
  drawing("path", { d: "M0 5H24", fill: "none", stroke: line.colour, "stroke-width": Math.max(2, line.width), "stroke-dasharray": line.dash.join(" ") || "none" }));
