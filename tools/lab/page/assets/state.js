// state is what the reader chose; the address of the page holds all of it that is not as it was at first, behind "#section?",
// so that a link shows the same again.
const state = {
  q: "", by: "", sort: "", columns: "", off: "",
  metric: "", x: "", lines: "groups", facet: "", smooth: "0", logx: "", logy: "", bands: "", range: "",
  setting: "", result: "", brush: "",
  run: "", view: "", split: "train", form: "bubbles", order: "number", keys: "",
};
const initial = { ...state };
let section = "";
const watchers = [];

// watch calls f with the names of what changed.
function watch(f) {
  watchers.push(guarded(f));
}

// guarded calls f. An error in f, which would end the script, leaves the other parts of the page as they are and is shown.
function guarded(f) {
  return async (...given) => {
    try {
      await f(...given);
    } catch (error) {
      const said = $("problem");
      said.hidden = false;
      said.textContent = `A part of this page cannot be drawn (${error}). The other parts are complete. Reload the page, or report this line.`;
      console.error(error);
    }
  };
}

// choose changes what the reader chose, in the address too.
function choose(changes) {
  const changed = Object.keys(changes).filter((k) => state[k] !== changes[k]);
  if (!changed.length) return;
  Object.assign(state, changes);
  keepAddress();
  for (const f of watchers) f(changed);
}

function keepAddress() {
  const chosen = new URLSearchParams(Object.entries(state).filter(([k, v]) => v !== initial[k])).toString();
  const hash = section || chosen ? `#${section}${chosen ? "?" + chosen : ""}` : "#";
  try {
    history.replaceState(null, "", hash);
  } catch { /* a place where addresses are fixed */ }
}

// readAddress takes over what the address says, and goes to its section.
function readAddress() {
  const [place, query] = location.hash.slice(1).split(/\?(.*)/s);
  section = place;
  const given = Object.fromEntries(new URLSearchParams(query || ""));
  for (const k of Object.keys(state)) state[k] = k in given ? given[k] : initial[k];
}

function goTo(id) {
  section = id;
  keepAddress();
  const place = $(id);
  if (place) place.scrollIntoView();
}

const listed = (text) => (text ? text.split("|") : []);
