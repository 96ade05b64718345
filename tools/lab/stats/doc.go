// Package stats tests differences between paired values, such as accuracies of two methods over seeds and tasks. It
// adds to gonum/stat: Student's t, Wilcoxon's signed ranks, effect sizes, Holm's correction and bootstrap intervals.
package stats
