// Package partition assigns the examples of a set to clients, by label, by domain or by both, as papers or their public
// code do, and selects few-shot examples inside a client (docs/partitions.md has the formulas). It may import
// federation/data and federation/method.
package partition
