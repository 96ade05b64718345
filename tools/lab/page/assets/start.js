readAddress();

// startWritten makes tables that were written before the script ran sort, filter and copy.
function startWritten(box) {
  for (const table of box.querySelectorAll("table.sortable")) {
    enhance(table);
    markMethods(table);
  }
}
document.querySelectorAll(".scroll.drawing").forEach(fade);
for (const start of [startTheme, () => startWritten(document), startRuns, startCurves, startSettings, startCompare, startRun, startLive, startKeys]) guarded(start)();

// A link to a section keeps what was chosen.
document.addEventListener("click", (e) => {
  const a = e.target.closest('a[href^="#"]:not(.skip)');
  if (!a) return;
  e.preventDefault();
  goTo(a.getAttribute("href").slice(1));
});
addEventListener("hashchange", () => {
  const before = { ...state };
  readAddress();
  const changed = Object.keys(state).filter((k) => state[k] !== before[k]);
  for (const f of watchers) if (changed.length) f(changed);
  if (section && $(section)) $(section).scrollIntoView();
});
if (section && $(section)) requestAnimationFrame(() => setTimeout(() => $(section).scrollIntoView({ behavior: "instant" })));

// The section on screen is marked in the navigation.
const onScreen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const a of document.querySelectorAll("nav a")) {
      if (a.getAttribute("href") !== "#" + entry.target.id) {
        a.removeAttribute("aria-current");
        continue;
      }
      a.setAttribute("aria-current", "true");
    }
  }
}, { rootMargin: "-10% 0px -80% 0px" });
document.querySelectorAll("main section").forEach((s) => onScreen.observe(s));
document.documentElement.dataset.ready = "true";
