// A live page is told by its server what changes: single runs, or that everything is to be read again.
function startLive() {
  if (!data.live) return;
  const said = $("live"), changes = new EventSource("events?since=" + encodeURIComponent(data.version));
  said.hidden = false;
  let late = 0;
  const soon = (what) => {
    clearTimeout(late);
    late = setTimeout(() => watchers.forEach((f) => f(what)), 100);
  };
  const tell = (state, text) => { said.dataset.state = state; said.textContent = text; };
  changes.addEventListener("open", () => tell("on", "live"));
  changes.addEventListener("error", () => tell("off", "not connected"));
  changes.addEventListener("runs", (e) => {
    for (const run of JSON.parse(e.data)) {
      const at = data.runs.findIndex((r) => r.folder === run.folder);
      if (at >= 0) data.runs[at] = run;
    }
    soon(["data"]);
  });
  changes.addEventListener("page", async () => {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    data = JSON.parse(fresh.getElementById("data").textContent);
    for (const old of document.querySelectorAll("[data-written]")) { // what the server wrote, in place
      const now = fresh.querySelector(`[data-written="${old.dataset.written}"]`);
      if (!now) continue;
      old.hidden = now.hidden;
      old.replaceChildren(...[...now.childNodes].map((n) => document.importNode(n, true)));
      startWritten(old);
    }
    document.title = fresh.title;
    soon(["data"]);
  });
}
