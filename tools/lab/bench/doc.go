// Package bench measures what training costs: the step that federations run, against the plain gradient graph over all
// 77 positions, bare matrix products and a step in PyTorch, taking turns, so that their ratios hold on a machine that
// others use too; whole rounds of an experiment; and a step of every method.
package bench
