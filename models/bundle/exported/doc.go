// Package exported reads a CLIP that another tool wrote as ONNX files: a folder with one or two of them, a vocabulary
// and a configuration of the preprocessing. Values that bundle.json does not give are derived from the graphs, and
// given values are checked against them (docs/dropin.md). It may import bundle and the packages below it; a Runner runs
// graphs.
package exported
