// The log of a run. It follows the newest line where the reader stands at the end.
panels.log = (box) => {
  const text = el("pre"), log = el("div", { id: "run-log", class: "scroll code", role: "group", tabIndex: 0, "aria-label": "log of the run" }, text);
  box.append(log);
  return (lines) => {
    const whole = (lines || []).join("\n"), end = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    if (whole !== text.textContent) {
      text.textContent = whole;
      if (end) log.scrollTop = log.scrollHeight;
    }
    return whole !== "";
  };
};
