// Package optim updates parameters from gradients: SGD, Adam and AdamW with PyTorch's semantics, gradient clipping and
// learning-rate schedules. It may import runtime/tensor. An optimizer is a chain of small transforms as in optax: each
// turns gradients into updates and keeps its state as named tensors, so that a checkpoint restores it bit for bit.
// Values are float32, the arithmetic on each element is float64, and names are visited in sorted order.
package optim
