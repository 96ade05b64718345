// Package programs keeps the graphs that a run computes with as ONNX files in a folder, and lets a run compute with the
// files of a folder in place of the graphs that it builds. It may import client and runtime.
package programs
