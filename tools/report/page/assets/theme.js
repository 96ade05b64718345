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
  button.textContent = isDark() ? "☀ Light" : "☾ Dark";
  button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  document.dispatchEvent(new Event("themechange"));
}

function startTheme() {
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
      document.dispatchEvent(new Event("themechange"));
    });
  }
  themeChanged();
}

// Colours of lines: every one has a contrast of 3 and more with the page it stands on.
const lightLines = ["#0b57c2", "#c2410c", "#15803d", "#9333ea", "#be123c", "#0e7490", "#8a6100", "#c026a3", "#4d7c0f", "#566073"];
const darkLines = ["#6aa9ff", "#fb923c", "#4ade80", "#c79bff", "#fb7185", "#22d3ee", "#eac54f", "#f472d0", "#a3e635", "#aab4c5"];
const lineColour = (i) => (isDark() ? darkLines : lightLines)[i % lightLines.length];
const lineDash = (i) => [[], [8, 4], [2, 3], [10, 3, 2, 3]][Math.floor(i / lightLines.length) % 4];
