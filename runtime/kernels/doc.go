// Package kernels holds custom operators for ONNX Runtime, written in C: attention, activation and the gradient of
// layer norm for training steps, and matrix products with packed weights. It may import only runtime/onnx; runtime/ops
// defines shapes and gradients of the operators, and runtime/ort registers them with every session.
package kernels
