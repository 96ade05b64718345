// The configuration of a run; what differs from other runs is marked. A line is a text and the settings on it.
panels.config = (box) => {
  const text = el("pre", { id: "run-config" });
  box.append(el("details", { id: "run-config-part" }, el("summary", {}, "Configuration; what differs from other runs is marked"),
    el("div", { class: "scroll code", role: "group", tabIndex: 0, "aria-label": "configuration of the run" }, text)));
  const marked = (line) => {
    const bare = line.trimStart();
    return el("span", {}, line.slice(0, line.length - bare.length), el("mark", {}, bare));
  };
  return (lines) => {
    if (!lines) return false;
    text.replaceChildren(...lines.flatMap(([line, ...keys]) => [keys.some((k) => data.keys.includes(k)) ? marked(line) : line, "\n"]));
  };
};
