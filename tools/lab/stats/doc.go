// Package stats tests differences between paired values, such as accuracies of two methods over seeds and tasks:
// Student's t, Wilcoxon's signed ranks, effect sizes, Holm's correction and bootstrap intervals, as far as gonum/stat
// does not have them.
package stats
