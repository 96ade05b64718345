// Package ort runs ONNX graphs with ONNX Runtime. It is the one place that knows the binding
// (github.com/yalue/onnxruntime_go) and the shared library behind it; everything above deals in tensors by name.
//
//	s, err := ort.NewSession(model, ort.Options{WeightsDir: dir})
//	out, err := s.Run(ctx, tensor.Map{"ctx": prompt, "image": features, "label": labels}, "loss", "grad/ctx")
//
// A session is compiled once and may be run from any number of goroutines at the same time.
//
// Every input and output that is not float32 or int64 in the graph is given a Cast at the border before the graph is
// compiled, so that callers see float tensors for all floating types and integer tensors for all integer types and
// bool. Outputs of unknown rank leave the graph flat, beside their shape. ONNX Runtime does both conversions.
//
// The environment of ONNX Runtime lives as long as the process. Tearing it down buys nothing at exit, and on some
// releases hangs or crashes after a provider failed to load.
package ort
