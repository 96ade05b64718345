// Package bench measures the cost of training: the training step of a federation, whole rounds of an experiment, and
// one step of every method. The step takes turns with the plain gradient graph over all 77 positions, with bare matrix
// products and with a step in PyTorch, so that ratios stay valid on a shared machine.
package bench
