// Command gendocs writes the tables in README.md and docs/ that are generated from the code (methods, options, metrics,
// configuration keys, data sets, partitions and packages) and from docs/results.csv. Run it from the module root, or
// with `make docs`. Its tests fail if a table is not current.
package main
