// Package ort runs ONNX graphs with ONNX Runtime. It is the only package that imports the binding
// (github.com/yalue/onnxruntime_go) and loads the shared library; it may import runtime/kernels, onnx, tensor,
// filestamp and numerics, and packages above see only tensors by name.
//
//	s, err := ort.NewSession(model, ort.Options{WeightsDir: dir})
//	out, err := s.Run(ctx, tensor.Map{"ctx": prompt, "image": features, "label": labels}, "loss", "grad/ctx")
//
// A session is compiled once, and any number of goroutines may run it at the same time.
//
// Before compilation, every input and output that is not float32 or int64 in the graph gets a Cast: callers see float
// tensors for all floating types, and integer tensors for all integer types and bool. Outputs of unknown rank are
// flattened, and their shape becomes another output.
//
// The environment of ONNX Runtime lives as long as the process. Its release has no use at exit, and some versions hang
// or crash in it after a provider failed to load.
package ort
