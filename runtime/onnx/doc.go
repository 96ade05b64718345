// Package onnx is all of ONNX files: their schema, reading and writing with every size and name checked and malformed
// graphs refused, one walk over what a model holds, one reader of external data, and the transformations of models that
// need no shapes: older operator sets to the present one, functions inlined, large initializers left in their file,
// inputs and outputs in the two element types that sessions take.
package onnx

//go:generate sh generate.sh
