// Numbers as people read them: "83.12", "1.24 MB", "0.0123".
function formatValue(v, unit) {
  if (v == null) return "–";
  switch (unit) {
    case "%": return v.toFixed(2);
    case "bytes": return si(v) + "B";
    case "s": return trim(v) + " s";
  }
  return trim(v) + (unit ? " " + unit : "");
}

// formatTick is formatValue without needless zeros.
function formatTick(v, unit) {
  if (v == null) return "";
  if (unit === "bytes") return si(v) + "B";
  return String(Number(v.toPrecision(6)));
}

const trim = (v) => (v === 0 ? "0" : Math.abs(v) >= 1e6 || Math.abs(v) < 1e-4 ? v.toExponential(3) : Number(v.toPrecision(4)).toLocaleString("en"));

function si(v) {
  const a = Math.abs(v);
  for (const [scale, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (a >= scale) return Number((v / scale).toPrecision(4)) + " " + letter;
  }
  return Number(v.toPrecision(4)) + " ";
}

const number = (n) => ({ text: n.toLocaleString("en"), key: n });
const sentence = (text) => text[0].toUpperCase() + text.slice(1);
