// Colours follow the system unless the reader chose; a choice is kept where the browser lets a file keep something.
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function isDark() {
  if (printing) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : darkSystem.matches;
}

function themeChanged() {
  const button = $("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  themed();
}

const themed = () => watchers.forEach((f) => f(["theme"]));

function startTheme() {
  watch((changed) => { if (changed.some((k) => ["data", "theme"].includes(k))) recolour(); });
  const root = document.documentElement;
  try {
    const kept = localStorage.getItem("promptfed-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* no storage for this file */ }
  const button = $("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("promptfed-theme", root.dataset.theme);
    } catch { /* chosen for this time only */ }
    themeChanged();
  });
  darkSystem.addEventListener("change", themeChanged);
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = value;
      themed();
    });
  }
  themeChanged();
}

// methodColour is the colour of a method, wherever it stands and whatever else is shown: that of its place among the
// report's methods, which its colour in the report's figures is too (figures.MethodColours).
const methodColour = (method) => lineColour(Math.max(0, data.methods.indexOf(method)));

// runColour is the colour of a run's method; grey where other runs have a method and this one has none.
const runColour = (run) => (run.method || data.methods.length < 2 ? methodColour(run.method) : groupColour(0));

// methodSwatch is a mark in the colour of a method; none where there is one method only.
function methodSwatch(method) {
  if (!method || data.methods.length < 2) return "";
  const mark = swatch({ colour: methodColour(method), width: 6, dash: [] });
  mark.dataset.method = method;
  return mark;
}

// recolour gives the marks of methods that stay in place the colours of the present theme and methods.
function recolour() {
  for (const mark of document.querySelectorAll("svg[data-method]")) {
    mark.firstChild.setAttribute("stroke", methodColour(mark.dataset.method));
  }
}

// Colours are those of the report's figures; every one has a contrast of 3 and more with the page it stands on. Lines have lineColour
// where they are of one method, or where all runs are; whatever else there is has groupColour.
const lineColour = (i) => nth(data.colours[isDark() ? "dark" : "light"], i);
const groupColour = (i) => nth(data.colours[isDark() ? "groupsDark" : "groupsLight"], i);
const nth = (list, i) => list[i % list.length];

// mapColour is the colour of a share between 0 and 1, in every drawing of shares or counts.
const mapColour = (share) => data.colours.map[Math.round(share * (data.colours.map.length - 1))];

// mapKey explains the colours of a drawing.
function mapKey(low, high) {
  const ramp = el("span", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${data.colours.map.join()})`;
  return el("span", {}, low, ramp, high);
}
