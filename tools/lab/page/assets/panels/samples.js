// Test images of a client with their predictions. The server of a live page classifies them when asked; no report has them.
const sampleKinds = [["", "wrong ones first"], ["wrong", "wrong"], ["right", "right"]], mostSamples = 24;

panels.samples = (box) => {
  const [client, view, kind] = ["client", "view", "kind"].map((name) => el("select", { id: "samples-" + name, onchange: show }));
  const button = el("button", { id: "samples-start", type: "button" }, "Classify test images"), said = el("span", { id: "samples-status", class: "status", role: "status" });
  const grid = el("ul", { id: "samples-grid" }), kinds = labelled("Show", kind);
  box.append(el("div", { class: "controls" }, labelled("Client", client), labelled("Evaluation", view), kinds, button, said), grid,
    el("p", { class: "hint" }, "Below each class: what the client's classifier predicts, with its probability. Wrong predictions with the highest probability come first, right ones with the lowest. At most 96 test images of a client are classified. Reports do not contain the images."));
  const known = new Map(); // answers of the server, by what was asked
  choices(view, [["", "of the results"], ["global", "global"], ["personal", "personal"]], "");
  choices(kind, sampleKinds, "");
  let run;
  const asked = () => new URLSearchParams({ run: run.folder, client: client.value, view: view.value }).toString();

  function show() {
    const found = known.get(asked());
    kinds.hidden = !found;
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
  return (_, shown) => {
    run = shown;
    const part = data.parts[run.part];
    if (!part || run.state !== "done") return false;
    if (client.dataset.part !== String(run.part)) choices(client, part.clients.map((c, k) => [k, sentence(clientName(c, k))]), client.value);
    client.dataset.part = run.part;
    show();
  };
};
