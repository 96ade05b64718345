// Package ort runs ONNX graphs with ONNX Runtime. It is the only package that imports the binding
// (github.com/yalue/onnxruntime_go) and loads the shared library; it may import runtime/kernels, onnx, tensor,
// filestamp and numerics, and packages above see only tensors by name.
//
//	s, err := ort.NewSession(model, ort.Options{WeightsDir: dir})
//	out, err := s.Run(ctx, tensor.Map{"ctx": prompt, "image": features, "label": labels})
//
// A session is compiled once, and any number of goroutines may run it at the same time.
//
// Before compilation, every input and output that is not float32 or int64 in the graph gets a Cast: callers see float
// tensors for all floating types, and integer tensors for all integer types and bool. Outputs of unknown rank are
// flattened, and their shape becomes another output.
//
// The binding loads the library, creates the environment and its shared arena, turns telemetry off, and makes options
// of sessions, runs and providers. It lacks the following, which this package calls in ONNX Runtime's table of C
// functions (native.h):
//
//   - sessions with shared packed weights, and with initializers in the caller's memory; each session of the binding
//     would hold a packed copy of the weights (executable.go, shared.go)
//   - runs on values that stay where they are, on the host or on a device, and that the next run takes; the binding
//     copies outputs to new Go slices, and refuses some types, and rank 0 (executable.go, value.go, captured.go)
//   - memory, copies and capture of a device, and the stream of its provider, which is a pointer where the binding
//     takes texts (device.go, captured.go)
//   - operators of this program (AddCustomOpDomain), and entries of run options, such as the trimming of an arena
//     (native.go)
//   - which provider computes which node (placement.go), and how the library was built (native.go)
//
// The environment of ONNX Runtime lives as long as the process. Its release has no use at exit, and some versions hang
// or crash in it after a provider failed to load.
package ort
