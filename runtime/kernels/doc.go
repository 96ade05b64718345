// Package kernels holds custom operators for ONNX Runtime, written in C: attention, activation, layer norm, unit rows
// and cross entropy for training steps, and matrix products with packed weights. Those for steps are also in CUDA's C
// (device.cu), which generate.sh compiles to device.ptx. It may import only runtime/onnx; runtime/ops defines shapes
// and gradients of the operators, and runtime/ort registers them with every session.
package kernels
