// Package onnx reads, checks, transforms and writes ONNX models: the schema, checks of every size and name, a walk over
// all messages, external data, and transformations that need no shapes (upgrade to a later operator set, inlining of
// functions, large initializers as external data, inputs and outputs of float32 and int64). It imports nothing of this
// module.
package onnx

//go:generate sh generate.sh
