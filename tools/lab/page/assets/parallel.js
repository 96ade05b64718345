// Parallel draws parallel coordinates: an axis for each dimension, a line for each run. It is drawn by hand, since libraries for it bring
// d3 or a second chart library, many times the size of this file.
class Parallel {
  // opened is called with the id of a run, brushed with the ranges of values that the reader brushed, by the dimension's name.
  constructor(host, opened, brushed) {
    Object.assign(this, { host, opened, brushed, brushes: {}, at: -1 });
    this.tip = el("div", { class: "tip", hidden: true });
    this.heard = el("div", { class: "heard", role: "status" });
    this.svg = drawing("svg", {});
    host.append(this.svg, this.tip, this.heard);
    host.addEventListener("pointermove", (e) => this.point(e));
    host.addEventListener("pointerleave", () => this.mark(-1));
    host.addEventListener("click", (e) => { if (this.at >= 0 && !e.target.closest(".axle")) this.opened(this.order[this.at].folder); });
    host.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => { if (this.runs && host.clientHeight && (host.parentElement.clientWidth !== this.width || host.clientHeight !== this.high)) this.draw(this.runs, this.dimensions, this.brushes); }).observe(host.parentElement);
  }

  // draw replaces what is drawn, after a drag in progress.
  draw(...given) {
    if (this.held) this.late = given;
    else this.redraw(...given);
  }

  redraw(runs, dimensions, brushes) {
    Object.assign(this, { runs, dimensions, at: -1, width: this.host.parentElement.clientWidth, high: this.host.clientHeight });
    const result = dimensions[dimensions.length - 1];
    this.order = [...runs].sort((a, b) => result.of(b) - result.of(a)); // the keys go through the runs from the best number down
    this.place();
    this.bottom = this.high - 34;
    this.host.style.width = this.wide + "px";
    Object.entries({ width: this.wide, height: this.high, viewBox: `0 0 ${this.wide} ${this.high}` }).forEach(([k, v]) => this.svg.setAttribute(k, v));
    this.lines = this.order.map((r) => drawing("path", { d: this.path(r), stroke: runColour(r) }));
    const focused = [...this.svg.querySelectorAll(".axle")].indexOf(document.activeElement);
    this.svg.replaceChildren(drawing("g", { class: "lines" }, ...this.lines), ...dimensions.map((d, i) => this.axle(d, i)));
    if (focused >= 0) this.svg.querySelectorAll(".axle")[Math.min(focused, dimensions.length - 1)].focus();
    this.tip.hidden = true;
    this.host.setAttribute("aria-label", `Parallel coordinates of ${runs.length} runs: ${dimensions.map((d) => d.title).join(", ")}`);
    this.svg.style.setProperty("--seen", runs.length > 200 ? 0.25 : 0.65);
    this.dim(brushes);
  }

  // place finds the places of axes. Texts decide how far apart they are: the names are above them in one row, or else in two; the ticks of
  // the first axis are left of it, where no lines are, and those of the others are right of them.
  place() {
    const last = this.dimensions.length - 1, letter = 7, bold = 7.6;
    const ticks = this.dimensions.map((d) => letter * Math.max(...[...ticksOf(d).map((v) => tickText(d, v).length), this.runs.some((r) => d.of(r) == null) ? 4 : 0]));
    const names = this.dimensions.map((d) => bold * short(d.title, mostLetters).length), left = 16 + ticks[0], right = 16 + ticks[last];
    const from = (i, gap) => (i === 0 ? 0 : i === last ? left + last * gap + right - names[i] : left + i * gap - names[i] / 2);
    const fit = (rows, gap) => names.every((wide, i) => i + rows > last || from(i + rows, gap) - from(i, gap) - wide >= 10);
    let gap = Math.max((this.width - 2 - left - right) / last, 32 + Math.max(...ticks.slice(1, last), 0));
    while (!fit(2, gap)) gap += 8;
    this.rows = fit(1, gap) ? 1 : 2;
    this.top = 18 + 17 * this.rows;
    this.wide = left + last * gap + right;
    this.x = this.dimensions.map((_, i) => left + i * gap);
  }

  // y is the height of a run on an axis; a run without the setting is below it.
  y(i, run) {
    const v = this.dimensions[i].of(run);
    return v == null ? this.bottom + 16 : this.height(this.dimensions[i].at(v));
  }

  height(place) {
    return this.bottom - place * (this.bottom - this.top);
  }

  path(run) {
    return "M" + this.dimensions.map((_, i) => `${this.x[i].toFixed(1)} ${this.y(i, run).toFixed(1)}`).join("L");
  }

  // axle is an axis with its title, ticks and brush. The pointer drags a brush; the arrow keys move its lower end, with Shift the upper.
  axle(d, i) {
    const x = this.x[i], last = i === this.dimensions.length - 1;
    const ticks = ticksOf(d).map((v) => [d.at(v), v]).reduce((kept, t) => (kept.length && this.height(kept[kept.length - 1][0]) - this.height(t[0]) < 14 ? kept : [...kept, t]), []);
    const side = i === 0 ? { x: x - 10, "text-anchor": "end" } : { x: x + 10 };
    const missing = this.runs.some((r) => d.of(r) == null);
    const g = drawing("g", { class: "axle", tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-label": `Brush of ${d.title}`, "aria-valuemin": 0, "aria-valuemax": 100 },
      drawing("rect", { class: "strip", x: x - 14, y: this.top - 8, width: 28, height: this.bottom - this.top + 16 }),
      drawing("line", { x1: x, x2: x, y1: this.top, y2: this.bottom }),
      drawing("rect", { class: "brush", x: x - 7, width: 14, rx: 2 }),
      drawing("text", { class: "name", x: i === 0 ? 2 : last ? this.wide - 2 : x, y: 14 + 17 * (i % this.rows), "text-anchor": i === 0 ? "start" : last ? "end" : "middle" }, drawing("title", {}, d.title), short(d.title, mostLetters)),
      ...ticks.flatMap(([at, v]) => [drawing("line", { x1: x - 3, x2: x + 3, y1: this.height(at), y2: this.height(at) }),
        drawing("text", { ...side, y: this.height(at) + 4 }, tickText(d, v))]),
      ...(missing ? [drawing("text", { ...side, y: this.bottom + 20 }, "none")] : []));
    g.addEventListener("pointerdown", (e) => this.drag(e, g, d));
    return g;
  }

  drag(e, g, d) {
    if (e.button !== 0) return;
    e.preventDefault();
    g.focus({ preventScroll: true, focusVisible: false });
    const strip = g.querySelector(".strip"), place = (event) => {
      const box = this.svg.getBoundingClientRect();
      return Math.min(1, Math.max(0, (this.bottom - (event.clientY - box.top)) / (this.bottom - this.top)));
    };
    const from = place(e), before = { ...this.brushes }, over = new AbortController();
    strip.setPointerCapture(e.pointerId);
    this.held = true;
    const move = (event) => {
      const [low, high] = [from, place(event)].sort((a, b) => a - b);
      const range = (high - low) * (this.bottom - this.top) < 4 ? null : valuesWithin(d, low, high);
      const { [d.name]: _, ...others } = before;
      this.dim(range ? { ...others, [d.name]: range } : others);
    };
    const end = (event) => {
      over.abort();
      if (event.type === "pointerup") move(event); // without a drag the brush goes
      else this.dim(before);
      const chosen = this.brushes, late = this.late;
      this.held = this.late = null;
      if (late) this.draw(...late);
      this.brushed(chosen);
    };
    for (const [type, f] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) strip.addEventListener(type, f, { signal: over.signal });
  }

  brush(brushes) {
    if (!this.held) this.dim(brushes);
  }

  // dim shows ranges of values, and dims the runs outside.
  dim(brushes) {
    this.brushes = brushes;
    if (!this.runs) return;
    this.order.forEach((r, i) => this.lines[i].classList.toggle("out", !within(r, this.dimensions, brushes)));
    this.dimensions.forEach((d, i) => {
      const g = this.svg.querySelectorAll(".axle")[i], rect = g.querySelector(".brush"), [low, high] = this.range(d);
      const whole = low <= 0 && high >= 1;
      rect.setAttribute("y", this.height(high) - 3);
      rect.setAttribute("height", this.height(low) - this.height(high) + 6);
      rect.style.display = whole ? "none" : "";
      g.setAttribute("aria-valuenow", Math.round(100 * low));
      g.setAttribute("aria-valuetext", whole ? "all values" : brushes[d.name].map((v) => (d.numeric ? formatTick(Number(v), d.unit) : v)).join(" to "));
    });
  }

  // range is the brushed part of an axis, from 0 to 1.
  range(d) {
    const [low, high] = Array.isArray(this.brushes[d.name]) ? this.brushes[d.name].map(d.at) : [0, 1];
    return low <= high ? [low, high] : [0, 1];
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    const by = { ArrowUp: 1, ArrowDown: -1 }[e.key], g = e.target.closest(".axle");
    if (g) {
      const d = this.dimensions[[...this.svg.querySelectorAll(".axle")].indexOf(g)];
      const { [d.name]: _, ...others } = this.brushes;
      if (e.key === "Escape" || e.key === "Delete") this.brushed(others);
      else if (by) this.brushed({ ...others, ...this.moved(d, by, e.shiftKey) });
      else return;
    } else if (by || e.key === "ArrowLeft" || e.key === "ArrowRight") {
      const step = by ? -by : e.key === "ArrowRight" ? 1 : -1;
      this.mark(Math.min(Math.max(this.at + step, 0), this.order.length - 1));
      this.heard.textContent = [this.order[this.at].name, ...this.told(this.order[this.at]).map((t) => t.join(" "))].join(", ");
    } else if (e.key === "Enter" && this.at >= 0) this.opened(this.order[this.at].folder);
    else if (e.key === "Escape") this.mark(-1);
    else return;
    e.preventDefault();
  }

  // moved moves one end of a brush to the next value, or by a twentieth of an axis with many.
  moved(d, by, upper) {
    const range = this.range(d), stops = few(d) ? d.values.map(d.at) : Array.from({ length: 21 }, (_, i) => i / 20);
    const end = upper ? 1 : 0, now = stops.reduce((best, s, i) => (Math.abs(s - range[end]) < Math.abs(stops[best] - range[end]) ? i : best), 0);
    const to = stops[Math.min(Math.max(now + by, 0), stops.length - 1)];
    if (upper ? to >= range[0] : to <= range[1]) range[end] = to; // the ends do not pass each other
    return range[0] <= 0 && range[1] >= 1 ? {} : { [d.name]: valuesWithin(d, ...range) };
  }

  // told names what a run has on each axis.
  told(run) {
    return this.dimensions.map((d) => { const v = d.of(run); return [d.title, v == null ? "none" : d.numeric ? formatValue(v, d.unit || "") : v]; });
  }

  // point marks the run whose line is nearest to the pointer.
  point(e) {
    const box = this.svg.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
    const next = this.x.findIndex((x) => x > px), i = next < 0 ? this.x.length - 2 : Math.max(0, next - 1);
    const share = Math.min(1, Math.max(0, (px - this.x[i]) / (this.x[i + 1] - this.x[i])));
    let near = -1, least = 14;
    this.order.forEach((run, k) => {
      const far = Math.abs(this.y(i, run) + share * (this.y(i + 1, run) - this.y(i, run)) - py);
      if (far < least && !this.lines[k].classList.contains("out")) [near, least] = [k, far];
    });
    this.mark(e.buttons ? -1 : near, px, py);
  }

  mark(k, px, py) {
    if (this.lines[this.at]) this.lines[this.at].classList.remove("here");
    this.at = k;
    this.svg.classList.toggle("marked", k >= 0);
    this.tip.hidden = k < 0;
    if (k < 0) return;
    const run = this.order[k], last = this.x.length - 1;
    this.lines[k].classList.add("here");
    this.lines[k].parentNode.append(this.lines[k]); // above the others
    this.tip.replaceChildren(el("b", {}, run.name), ...this.told(run).map(([name, v]) => el("div", {}, el("span", {}, name), el("span", {}, v))));
    const [x, y] = [px ?? this.x[last], py ?? this.y(last, run)], left = x > this.wide / 2 ? x - 16 - this.tip.offsetWidth : x + 16;
    this.tip.style.left = Math.min(Math.max(0, left), this.wide - this.tip.offsetWidth) + "px";
    this.tip.style.top = Math.min(Math.max(0, y - this.tip.offsetHeight / 2), this.high - this.tip.offsetHeight) + "px";
  }
}

// ticksOf are the values of a setting where these are few, powers of ten of a logarithmic axis, and else multiples of 1, 2 or 5.
function ticksOf(d) {
  if (!d.measured && few(d) && d.values.length <= mostTexts) return d.values;
  const low = d.values[0], high = d.values[d.values.length - 1];
  const from = (first, last, value) => Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => value(first + i));
  if (d.log) return from(Math.ceil(Math.log10(low)), Math.floor(Math.log10(high)), (k) => Number(`1e${k}`));
  const unit = 10 ** Math.floor(Math.log10((high - low) / 5)), step = [1, 2, 5, 10].map((m) => m * unit).find((s) => (high - low) / s <= 6);
  return from(Math.ceil(low / step), Math.floor(high / step), (k) => Number((k * step).toPrecision(6)));
}

// few tells whether brushes of a dimension end at its values.
const few = (d) => !d.numeric || d.values.length <= 20;

// valuesWithin is a part of an axis as the first and the last value inside; null for none.
function valuesWithin(d, low, high) {
  if (!few(d)) return [d.back(low), d.back(high)].map((v) => Number(v.toPrecision(6)));
  const inside = d.values.filter((v) => d.at(v) >= low - 1e-9 && d.at(v) <= high + 1e-9);
  return inside.length ? [inside[0], inside[inside.length - 1]] : null;
}

// tickText is a value at an axis.
const tickText = (d, v) => short(d.numeric ? (v !== 0 && Math.abs(v) < 1e-4 ? v.toExponential() : formatTick(v, d.unit)) : v, mostLetters / 2);

// mostLetters is the length of a name of an axis; the tip has the whole name, and whole values.
const mostLetters = 32;

const short = (text, most) => (text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text);
