// Command gendocs writes the tables in README.md and docs/ that are generated from the code (methods, options, metrics,
// configuration keys, data sets and partitions) and from docs/results.csv, go.mod of the examples,
// federation/methods/fromfile/example.onnx and tools/checks/budget.txt. Run it from the module root, or with `make
// generate`; with -check it only lists what is not current.
package main
