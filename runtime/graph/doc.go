// Package graph builds computations from ONNX operators: typed nodes with static and symbolic shapes, in which equal
// expressions are one node. It may import runtime/onnx and runtime/tensor; runtime/ops defines the operators.
//
// A node method with wrong arguments (for example, shapes that do not fit) does not panic. It records the first error
// in its Graph, with the operator and the shapes, and returns a failed node, on which every further method returns the
// failed node again. Err returns that error, and so does writing the graph. So losses read like formulas.
//
// A Graph is built by one goroutine at a time.
package graph
