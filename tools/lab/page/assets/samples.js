// Test images of a client with their predictions. The server of a live page classifies them when asked; no report has them.
const sampleKinds = [["", "wrong ones first"], ["wrong", "wrong"], ["right", "right"]], mostSamples = 24;

function startSamples() {
  if (!$("samples-tool")) return;
  const client = $("samples-client"), view = $("samples-view"), kind = $("samples-kind"), button = $("samples-start"), said = $("samples-status"), grid = $("samples-grid");
  const known = new Map(); // answers of the server, by what was asked
  choices(view, [["", "of the results"], ["global", "global"], ["personal", "personal"]], "");
  choices(kind, sampleKinds, "");
  const asked = () => new URLSearchParams({ run: runOf(state.run).id, client: client.value, view: view.value }).toString();

  function offer() {
    const run = runOf(state.run), part = run && run.part >= 0 ? data.parts[run.part] : null;
    $("samples-tool").hidden = !part || run.state !== "done";
    if ($("samples-tool").hidden) return;
    if (client.dataset.part !== String(run.part)) choices(client, part.clients.map((c, k) => [k, sentence(clientName(c, k))]), client.value);
    client.dataset.part = run.part;
    show();
  }

  function show() {
    const found = known.get(asked());
    kind.parentElement.hidden = !found;
    button.hidden = Boolean(found);
    const images = !found ? [] : found.images.filter((s) => !kind.value || (s.class === s.predicted) === (kind.value === "right")).slice(0, mostSamples);
    said.textContent = found ? `${found.view} evaluation: ${found.correct} of ${found.tested} images right${found.tested < found.of ? `, of ${found.of} that the client has` : ""}; ${images.length} shown` : "";
    grid.replaceChildren(...images.map((s) => {
      const right = s.class === s.predicted, says = `${right ? "right" : `predicted ${s.predicted}`}, ${(100 * s.probability).toFixed(0)}\u00a0%`;
      return el("li", { class: right ? "" : "wrong" }, el("img", { src: s.source, alt: `Image of ${s.class}` }), el("b", {}, s.class), el("span", {}, says));
    }));
  }

  button.addEventListener("click", async () => {
    const key = asked();
    button.disabled = true;
    said.textContent = "classifying test images…";
    try {
      const answer = await fetch("samples?" + key, { method: "POST" });
      if (answer.ok) known.set(key, await answer.json());
      if (asked() === key) {
        show();
        if (!answer.ok) said.textContent = await answer.text();
      }
    } catch {
      said.textContent = "the server does not answer";
    } finally {
      button.disabled = false;
    }
  });
  for (const s of [client, view, kind]) s.addEventListener("change", show);
  watch((changed) => { if (changed.some((k) => ["run", "data"].includes(k))) offer(); });
  offer();
}
