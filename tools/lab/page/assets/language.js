// A browser started under the C locale may call its language "en-US@posix", which Intl refuses; uPlot asks for it at once.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
