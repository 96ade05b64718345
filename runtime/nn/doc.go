// Package nn holds the layers of transformers as graph nodes, in the form that ONNX Runtime computes fastest together
// with their gradient. It may import the packages graph, ops and tensor of the runtime. Rows are tokens: a linear layer
// takes [N,width] for any batch.
package nn
