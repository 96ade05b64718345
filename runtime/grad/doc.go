// Package grad derives the graph of a gradient from the graph of a function: reverse-mode differentiation, in one pass
// over the nodes, with the gradient rule of each operator (runtime/ops). The result is an ordinary graph, which ONNX
// Runtime runs like inference. It may import the packages graph, onnx, ops and tensor of the runtime.
package grad
