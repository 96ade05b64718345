// Command gendocs writes the tables in README.md and docs/ that are generated from the code: methods, options, metrics,
// configuration keys, data sets, partitions and packages. Run it from the module root, or with `make docs`. Its tests
// fail if a table does not match the code.
package main
