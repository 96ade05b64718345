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

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// ErrClosed is wrapped by the error of a Run on a closed session or a Get on a closed pool.
var ErrClosed = errors.New("already closed")

// Session is a compiled graph. All methods may be called from many goroutines at the same time.
type Session struct {
	*program
	provider string
	fallback error
	binds    bool // inputs and outputs to memory of its devices
	slots    []slot

	mu       sync.RWMutex // held for reading by every run, for writing by Close
	replicas []*replica   // one for each device; none when closed
}

// replica is the session on one device.
type replica struct {
	device int
	inner  *binding.DynamicAdvancedSession
	held   *sharer
	bound  *binder // of a device with memory of its own, else nil
}

// NewSession compiles an ONNX model, which is not changed and not needed afterwards. It fails on inputs or outputs that
// are not tensors of numbers or bool, on external data that is missing, cut short or outside of Options.WeightsDir, on
// a provider that is not available, and on graphs that ONNX Runtime refuses.
func NewSession(model *onnx.ModelProto, o Options) (*Session, error) {
	o = o.WithProvider()
	if err := o.check(); err != nil {
		return nil, err
	}
	p, err := prepare(model, o)
	if err != nil {
		return nil, err
	}
	if err := start(o.Provider != CPU); err != nil {
		return nil, err
	}
	s := &Session{program: p, slots: p.slots()}
	switch o.Provider {
	case CUDA:
		s.provider, err = CUDA, s.compile(o, CUDA)
	case Auto:
		if s.provider, s.fallback = CUDA, s.compile(o, CUDA); s.fallback != nil {
			s.provider, err = CPU, s.compile(o, CPU)
		}
	default:
		s.provider, err = CPU, s.compile(o, CPU)
	}
	if err != nil {
		return nil, err
	}
	s.model, s.external, s.binds = nil, nil, o.onDevice(s.provider)
	return s, nil
}

// Open compiles the ONNX file at path. Options.WeightsDir defaults to the file's folder.
func Open(path string, o Options) (*Session, error) {
	model, err := onnx.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ort: %w", err)
	}
	if o.WeightsDir == "" {
		o.WeightsDir = filepath.Dir(path)
	}
	s, err := NewSession(model, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// compile makes a replica for each device of the options.
func (s *Session) compile(o Options, provider string) error {
	devices := 1
	if o.onDevice(provider) {
		devices = max(1, o.Devices)
	}
	for range devices {
		r, err := s.replica(o, provider)
		if err != nil {
			return errors.Join(err, s.destroy())
		}
		s.replicas = append(s.replicas, r)
		o.Device++
	}
	return nil
}

func (s *Session) replica(o Options, provider string) (*replica, error) {
	native, err := o.native(provider, s.weights)
	if err != nil {
		return nil, err
	}
	defer native.Destroy()
	r := &replica{device: o.Device}
	if onDevice := o.onDevice(provider); onDevice || o.Prepack && len(s.external) > 0 {
		if r.inner, r.held, err = s.compileShared(native, o, provider); err == nil && onDevice {
			r.bound, err = r.held.api.newBinder(r.inner, s.native, s.nativeOutputs)
		}
	} else {
		r.inner, err = binding.NewDynamicAdvancedSessionWithONNXData(s.model, s.native, s.nativeOutputs, native)
	}
	if err != nil {
		return nil, s.errorf("provider %s refuses it: %s", provider, oneLine(errors.Join(err, r.close())))
	}
	return r, nil
}

func (r *replica) close() (err error) {
	if r.inner != nil {
		r.bound.close()
		err = r.inner.Destroy()
	}
	return errors.Join(err, r.held.close())
}

// destroy frees all replicas.
func (s *Session) destroy() (err error) {
	for _, r := range s.replicas {
		err = errors.Join(err, r.close())
	}
	s.replicas = nil
	return err
}

// Inputs describes what Run takes, in the graph's order.
func (s *Session) Inputs() []ValueInfo { return slices.Clone(s.inputs) }

// Outputs describes what Run gives, in the graph's order or that of Options.Outputs.
func (s *Session) Outputs() []ValueInfo { return slices.Clone(s.outputs) }

// Provider is what the session runs on, CPU or CUDA.
func (s *Session) Provider() string { return s.provider }

// Fallback tells why provider Auto did not take CUDA; nil when it did or when another provider was asked for.
func (s *Session) Fallback() error { return s.fallback }

// Close waits for the runs in flight and frees the session. Closing again does nothing.
func (s *Session) Close() error { return closeSessions(s) }

// closeSessions closes sessions, and returns memory once for all that were open: the search for what can be returned
// takes longer than to free a small session.
func closeSessions(all ...*Session) error {
	var errs []error
	open := false
	for _, s := range all {
		was, err := s.free()
		open, errs = open || was, append(errs, err)
	}
	if open {
		errs = append(errs, TrimMemory())
	}
	return errors.Join(errs...)
}

// free waits for the runs in flight and frees the session; it tells whether it was open.
func (s *Session) free() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas == nil {
		return false, nil
	}
	if err := s.destroy(); err != nil {
		return true, s.errorf("closing: %s", oneLine(err))
	}
	return true, nil
}

// RunOnce compiles a model, runs it and closes it: for models that are needed a single time. See Session.Run.
func RunOnce(ctx context.Context, model *onnx.ModelProto, o Options, feeds tensor.Map,
	outputs ...string) (tensor.Map, error) {
	s, err := NewSession(model, o)
	if err != nil {
		return nil, err
	}
	out, err := s.Run(ctx, feeds, outputs...)
	return out, errors.Join(err, s.Close())
}
