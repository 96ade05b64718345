// Legend is a toolbar of buttons, one per line: one stop of the Tab key, arrow keys move inside.
class Legend {
  // changed is called when lines are switched; pointed with a line's key, or null.
  constructor(box, find, changed, pointed) {
    Object.assign(this, { box, find, changed, hidden: new Set(), lines: [], at: 0 });
    find.addEventListener("input", () => this.match());
    box.addEventListener("click", (e) => {
      const b = e.target.closest("button");
      if (b) this.toggle(b.dataset.key);
    });
    box.addEventListener("keydown", (e) => this.move(e));
    box.addEventListener("mouseover", (e) => pointed(keyOf(e.target)));
    box.addEventListener("mouseleave", () => pointed(null));
    box.addEventListener("focusin", (e) => pointed(keyOf(e.target)));
    box.addEventListener("focusout", () => pointed(null));
  }

  set(lines, unit) {
    this.lines = lines;
    const old = this.visible()[this.at];
    const key = old && old.dataset.key, focused = this.box.contains(document.activeElement);
    this.box.replaceChildren(...lines.map((line) => el("button", {
      type: "button", tabIndex: -1, "data-key": line.key, "aria-pressed": String(!this.hidden.has(line.key)),
    }, swatch(line), el("span", {}, entryOf(line)), el("span", { class: "value" }, formatValue(lastOf(line.y), unit)))));
    this.match();
    const same = this.visible().findIndex((b) => b.dataset.key === key);
    this.rove(Math.max(0, same));
    if (focused && same >= 0) this.visible()[same].focus();
  }

  visible() {
    return [...this.box.children].filter((b) => !b.hidden);
  }

  match() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const b of this.box.children) b.hidden = !words.every((w) => b.textContent.toLowerCase().includes(w));
    this.rove(0);
  }

  rove(i) {
    const list = this.visible();
    this.at = Math.min(i, list.length - 1);
    for (const b of this.box.children) b.tabIndex = -1;
    if (list[this.at]) list[this.at].tabIndex = 0;
  }

  move(e) {
    const list = this.visible();
    const now = list.indexOf(document.activeElement);
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: list.length - 1 }[e.key];
    if (now < 0 || to === undefined) return;
    e.preventDefault();
    const next = (to + list.length) % list.length;
    this.rove(next);
    list[next].focus();
  }

  toggle(key) {
    if (this.hidden.has(key)) this.hidden.delete(key);
    else this.hidden.add(key);
    this.press();
  }

  // all switches the lines that match what is looked for.
  all(on) {
    for (const b of this.visible()) {
      if (on) this.hidden.delete(b.dataset.key);
      else this.hidden.add(b.dataset.key);
    }
    this.press();
  }

  press() {
    for (const b of this.box.children) b.setAttribute("aria-pressed", String(!this.hidden.has(b.dataset.key)));
    this.changed();
  }

  shown() {
    return this.lines.filter((l) => !this.hidden.has(l.key));
  }
}

const keyOf = (target) => {
  const b = target.closest("button");
  return b && b.getAttribute("aria-pressed") === "true" ? b.dataset.key : null;
};

// entryOf names a line with the number of its runs, and says if these are not finished.
const entryOf = (line) => {
  const facts = [line.n > 1 ? `n = ${line.n}` : "", line.unfinished ? "not finished" : ""].filter(Boolean);
  return facts.length ? `${line.name} (${facts.join(", ")})` : line.name;
};
