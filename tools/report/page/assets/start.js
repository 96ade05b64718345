const data = JSON.parse($("data").textContent);
document.querySelectorAll("table.sortable").forEach(enhance);
startTheme();
startCurves(data);
startPartition(data);

// The section on screen is marked in the navigation.
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
const watch = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const [id, a] of links) {
      if (id !== entry.target.id) {
        a.removeAttribute("aria-current");
        continue;
      }
      a.setAttribute("aria-current", "true");
      const list = a.closest("ul"); // on a phone the links scroll
      list.scrollLeft = a.offsetLeft - (list.clientWidth - a.offsetWidth) / 2;
    }
  }
}, { rootMargin: "-10% 0px -80% 0px" });
document.querySelectorAll("main section").forEach((s) => watch.observe(s));
document.documentElement.dataset.ready = "true";
