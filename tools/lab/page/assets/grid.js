// Grid draws clients by classes into a box that scrolls: names of classes stay at the left, numbers of clients on top.
class Grid {
  // pointed is called with the place in order and the class under the pointer or the keys, or null.
  constructor(host, pointed) {
    Object.assign(this, { host, pointed, at: null });
    this.parts = Object.fromEntries(["corner", "top", "side", "body"].map((name) => [name, el("canvas", { class: name, "aria-hidden": "true" })]));
    this.here = el("div", { class: "here", hidden: true });
    this.sheet = el("div", { class: "sheet" }, ...Object.values(this.parts), this.here);
    host.append(this.sheet);
    this.parts.body.addEventListener("mousemove", (e) => this.go(Math.floor(e.offsetX / this.w), Math.floor(e.offsetY / this.h), false));
    this.parts.body.addEventListener("click", (e) => this.go(Math.floor(e.offsetX / this.w), Math.floor(e.offsetY / this.h), false));
    host.addEventListener("mouseleave", () => { if (document.activeElement !== host) this.leave(); });
    host.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => { if (this.view && host.parentElement.clientWidth !== this.width) this.draw(this.view); }).observe(host.parentElement);
  }

  // draw takes {clients, classes, counts[client][class], largest, colour(share of largest), strips: [colour(client)], form}, and for cells
  // names of the columns and whole, whether a class has cells without counts.
  draw(view) {
    this.view = view;
    const { clients, classes } = view, host = this.host;
    this.width = host.parentElement.clientWidth;
    const narrow = this.width < 560;
    const measure = this.pen(this.parts.side, 1, 1);
    const label = Math.max(...classes.map((c) => measure.measureText(c).width), 10);
    this.left = Math.ceil(Math.min(label + 16, narrow ? 124 : 220));
    this.head = view.names ? Math.ceil(Math.min(label, 110)) + 14 : 26 + 6 * view.strips.length;
    this.w = Math.min(44, Math.max(narrow ? 12 : 8, Math.floor((this.width - this.left - 2) / clients.length)));
    this.h = Math.min(30, Math.max(14, Math.floor(400 / classes.length)), Math.max(14, this.w));
    if (view.names) this.w = this.h = Math.min(30, Math.max(5, Math.floor((this.width - this.left - 2) / classes.length)));
    this.sheet.style.gridTemplateColumns = `${this.left}px ${this.w * clients.length}px`;
    this.pen(this.parts.corner, this.left, this.head);
    this.drawTop();
    this.drawSide();
    this.drawBody();
    if (this.at) this.mark();
  }

  // pen sizes a canvas for the screen's pixels, fewer where it would get too large.
  pen(canvas, width, height) {
    const ratio = Math.min(devicePixelRatio || 1, 16000 / Math.max(width, height, 1));
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = `12px ${getComputedStyle(this.host).fontFamily}`;
    c.fillStyle = cssColour("--muted");
    c.textBaseline = "middle";
    return c;
  }

  drawTop() {
    const { clients, strips } = this.view;
    const c = this.pen(this.parts.top, this.w * clients.length, this.head);
    if (this.view.names) return this.drawNames(c);
    c.textAlign = "center";
    const widest = c.measureText(String(Math.max(...clients))).width + 6;
    const step = [1, 2, 5, 10, 20, 50, 100].find((s) => s * this.w >= widest) || 200;
    clients.forEach((k, i) => {
      if (i % step === 0) c.fillText(String(k), i * this.w + this.w / 2, 13);
    });
    strips.forEach((colour, s) => clients.forEach((k, i) => {
      c.fillStyle = colour(k);
      c.fillRect(i * this.w, 24 + 6 * s, this.w - (this.w > 10 ? 1 : 0), 4);
    }));
  }

  // drawNames writes the names of columns upright.
  drawNames(c) {
    const step = Math.ceil(11 / this.w);
    this.view.names.forEach((name, i) => {
      if (i % step) return;
      c.save();
      c.translate(i * this.w + this.w / 2, this.head - 6);
      c.rotate(-Math.PI / 2);
      c.fillText(fit(c, name, this.head - 10), 0, 1);
      c.restore();
    });
  }

  drawSide() {
    const { classes } = this.view;
    const c = this.pen(this.parts.side, this.left, this.h * classes.length);
    c.textAlign = "right";
    const step = Math.ceil(11 / this.h);
    classes.forEach((name, i) => i % step || c.fillText(fit(c, name, this.left - 14), this.left - 8, i * this.h + this.h / 2 + 1));
  }

  drawBody() {
    const { clients, classes, counts, largest, colour, form, whole } = this.view;
    const { w, h } = this;
    const c = this.pen(this.parts.body, w * clients.length, h * classes.length);
    c.strokeStyle = cssColour("--line");
    c.lineWidth = 0.5;
    c.beginPath();
    for (let i = 0; i <= classes.length; i++) { c.moveTo(0, i * h); c.lineTo(w * clients.length, i * h); }
    if (w >= 12) for (let i = 0; i <= clients.length; i++) { c.moveTo(i * w, 0); c.lineTo(i * w, h * classes.length); }
    c.stroke();
    c.fillStyle = colour(0);
    classes.forEach((_, cls) => { if (whole && whole(cls)) c.fillRect(0, cls * h, w * clients.length, h); });
    const gap = w > 10 && !whole ? 0.5 : 0;
    clients.forEach((k, i) => {
      for (const [cls, n] of counts[k]) {
        c.fillStyle = colour(n / largest);
        if (form === "cells") {
          c.fillRect(i * w + gap, cls * h + gap, w - 2 * gap, h - 2 * gap);
        } else {
          c.beginPath();
          c.arc(i * w + w / 2, cls * h + h / 2, Math.max(1, Math.sqrt(n / largest) * (Math.min(w, h) / 2 - 0.5)), 0, 7);
          c.fill();
        }
      }
    });
  }

  go(i, cls, follow) {
    const { clients, classes } = this.view;
    this.at = [Math.min(Math.max(i, 0), clients.length - 1), Math.min(Math.max(cls, 0), classes.length - 1)];
    this.mark();
    if (follow) this.reveal();
    this.pointed(...this.at);
  }

  mark() {
    const [i, cls] = this.at;
    this.here.hidden = false;
    Object.assign(this.here.style, { left: this.left + i * this.w - 1 + "px", top: this.head + cls * this.h - 1 + "px", width: this.w + 2 + "px", height: this.h + 2 + "px" });
  }

  // reveal scrolls the box, not the page, to the marked place.
  reveal() {
    const [i, cls] = this.at, host = this.host;
    const x = i * this.w, y = cls * this.h;
    const wide = host.clientWidth - this.left, high = host.clientHeight - this.head;
    host.scrollLeft = Math.min(x, Math.max(host.scrollLeft, x + this.w - wide));
    host.scrollTop = Math.min(y, Math.max(host.scrollTop, y + this.h - high));
  }

  leave() {
    this.at = null;
    this.here.hidden = true;
    this.pointed(null);
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    const [i, cls] = this.at || [0, 0];
    const moves = {
      ArrowLeft: [i - 1, cls], ArrowRight: [i + 1, cls], ArrowUp: [i, cls - 1], ArrowDown: [i, cls + 1],
      Home: [0, cls], End: [Infinity, cls], PageUp: [i, cls - 10], PageDown: [i, cls + 10],
    };
    if (e.key === "Escape") return this.leave();
    if (!moves[e.key]) return;
    e.preventDefault();
    if (this.at) this.go(...moves[e.key], true);
    else this.go(0, 0, true);
  }
}

// gridPanel adds a grid to a panel's box: controls, what is pointed at, the grid, its key, a hint, and a table to open. pointed is that
// of Grid.
function gridPanel(box, name, controls, hint, summary, pointed) {
  const part = (tag, id, props, ...children) => el(tag, { id: `${name}-${id}`, ...props }, ...children);
  const read = part("p", "read", { class: "read", "aria-live": "polite" }), key = part("p", "key", { class: "key" });
  const host = part("div", "grid", { class: "scroll grid", role: "application", tabIndex: 0, "aria-describedby": name + "-hint" });
  const lazy = el("div", { class: "lazy" }), table = part("details", "data", {}, el("summary", {}, summary), lazy);
  box.append(el("div", { class: "controls" }, ...controls), read, host, key, part("p", "hint", { class: "hint" }, ...hint), table);
  const grid = new Grid(host, pointed);
  host.addEventListener("blur", () => grid.leave());
  fade(host);
  return { grid, host, read, key, table, lazy };
}

// fit shortens a text to a width.
function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let n = text.length;
  while (n > 1 && pen.measureText(text.slice(0, n) + "…").width > width) n--;
  return text.slice(0, n) + "…";
}
