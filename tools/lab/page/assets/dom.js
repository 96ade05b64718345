const $ = (id) => document.getElementById(id);

// el makes an element. Texts go in as text: nothing of the report is ever read as HTML.
function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (k === "class") e.className = v;
    else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k in e && !k.includes("-") && k !== "list") e[k] = v;
    else e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// drawing makes an element of SVG.
const drawing = (tag, attributes, ...children) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};

function choices(select, list, chosen) {
  select.replaceChildren(...list.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)));
}

const labelled = (text, select) => el("label", {}, text + " ", select);

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
