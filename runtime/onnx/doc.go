// Package onnx is the schema of ONNX files, as far as this program reads and writes them.
package onnx
