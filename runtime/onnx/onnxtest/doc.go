// Package onnxtest turns good models into hostile ones, and into ones that round like a device, for tests of all code
// that reads or runs models. It imports runtime/onnx.
package onnxtest
