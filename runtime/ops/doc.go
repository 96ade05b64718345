// Package ops defines the operators of ONNX and ONNX Runtime from which graphs are built, one file for each family. It
// may import runtime/graph and runtime/tensor; the definition of an operator is all that promptfed knows of it.
//
// A definition (graph.Def) holds the minimum number of inputs, the attributes with their types, the shape rule, and the
// gradient: either the vector-Jacobian product, or a decomposition into other operators, which are then differentiated.
// The test file of the family holds its cases for finite differences; TestGradients fails for a gradient without a
// case.
package ops
