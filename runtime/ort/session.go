package ort

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// ErrClosed is wrapped by the error of Run on a closed session.
var ErrClosed = errors.New("already closed")

// Session is a compiled graph. All methods are safe for concurrent use.
type Session struct {
	*program
	provider string
	slots    []slot
	cached   *cachedGraph // owns the replicas of a session of NewCachedSession, else nil
	fixed    *fixedSizes  // nil without graphs of fixed sizes

	mu       sync.RWMutex // read-locked by every run, locked by Close
	replicas []*replica   // one for each device; nil after Close
}

// replica is the session of one device.
type replica struct {
	*executable
	device   int
	threads  *threads   // nil on the CPU
	captured *captured  // nil unless the graph has fixed sizes and runs on a device
	held     *container // nil without shared weights
	uploader *uploader  // nil unless the device has its own memory
}

// NewSession compiles an ONNX model, which it does not change and keeps only for graphs of fixed sizes. It fails if
// inputs or outputs are not tensors of numbers or bool, if external data are missing, cut short or outside of
// Options.WeightsDir, if the provider is not available, and if ONNX Runtime rejects the graph.
func NewSession(model *onnx.ModelProto, o Options) (*Session, error) {
	return openSession(model, o, false)
}

func openSession(model *onnx.ModelProto, options Options, cached bool) (*Session, error) {
	session, options, err := newSession(model, options)
	if err != nil {
		return nil, err
	}

	options.Spinning, options.Runs = options.spins(), 0
	compile := func() ([]*replica, error) { return session.program.compile(options) }
	if cached {
		session.cached = acquire(session.program, options, compile)
	}

	if session.cached != nil {
		compile = session.cached.compile
	}

	if session.replicas, err = compile(); err != nil {
		session.cached.fail()
		return nil, err
	}

	session.model, session.external = nil, nil
	return session, nil
}

// newSession returns a session that is not compiled yet, and its options with the provider that it runs on.
func newSession(model *onnx.ModelProto, options Options) (*Session, Options, error) {
	options = options.WithProvider()
	if err := options.check(); err != nil {
		return nil, options, err
	}

	if options.Provider == Auto {
		var err error
		if options, _, err = ChooseProvider(options); err != nil {
			return nil, options, err
		}
	}

	program, err := prepare(model, options)
	if err != nil {
		return nil, options, err
	}

	if err := start(options.Provider != CPU); err != nil {
		return nil, options, err
	}

	s := &Session{program: program, provider: options.Provider, slots: program.slots()}
	if options.onDevice() && !options.sized {
		s.fixed = &fixedSizes{model: model, options: options, sizes: map[string]*sizedGraph{}}
		s.fixed.weights, _ = program.stamps()
		s.fixed.options.sized = true
		s.fixed.options.capture = options.Profile == "" // a replay has no operators to measure
	}

	return s, options, nil
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

// compile compiles the program for each device.
func (p *program) compile(options Options) (all []*replica, err error) {
	devices := 1
	if options.onDevice() {
		devices = max(1, options.Devices)
	}

	for range devices {
		r, err := p.replica(options)
		if err != nil {
			return nil, errors.Join(err, closeReplicas(all))
		}
		all = append(all, r)
		options.Device++
	}

	return all, nil
}

// replica compiles the program for one device: as a captured graph if the options ask for one and the device can.
func (p *program) replica(options Options) (*replica, error) {
	if !options.capture {
		return p.open(options)
	}

	err := p.errorf("the size of an output depends on values or exceeds %d elements", maxFixed)
	if p.fixedSizes() {
		var r *replica
		if r, err = p.open(options); err == nil {
			noteCapture(nil)
			return r, nil
		}
	}

	noteCapture(err)
	options.capture = false
	return p.open(options)
}

func (p *program) open(options Options) (opened *replica, err error) {
	opened = &replica{device: options.Device, threads: openThreads(options)}
	err = opened.threads.do(context.Background(), func() error { return opened.create(p, options) })
	if err == nil && options.capture {
		err = alone(func() error {
			return opened.captured.own.call(func() error { return opened.capture(p) })
		})
	}

	if err != nil {
		return nil, errors.Join(err, opened.close())
	}

	return opened, nil
}

func (r *replica) create(program *program, options Options) (err error) {
	if options.capture {
		if r.captured, err = newCaptured(options); err != nil {
			return err
		}
		options.stream = r.captured.stream
	}

	native, err := options.native(program.weights)
	if err != nil {
		return err
	}
	defer native.Destroy()

	if options.onDevice() || options.Prepack && len(program.external) > 0 {
		err = r.compileShared(program, native, options)
	} else {
		err = r.compile(program, native, nil)
	}

	if err != nil {
		return program.errorf("provider %s rejects it: %s", options.Provider, plain(err))
	}

	return nil
}

func (r *replica) compile(p *program, options *binding.SessionOptions, container unsafe.Pointer) error {
	a, err := native()
	if err == nil {
		r.executable, err = a.compile(p.model, options, container, p.native, p.nativeOutputs)
	}
	return err
}

func (r *replica) close() error {
	defer r.threads.close()
	return r.threads.do(context.Background(), func() error {
		err := r.captured.release()
		r.executable.close()
		return errors.Join(err, r.held.close(), r.captured.close())
	})
}

func closeReplicas(all []*replica) (err error) {
	for _, r := range all {
		err = errors.Join(err, r.close())
	}
	return err
}

// Inputs describes the inputs of Run, in the graph's order.
func (s *Session) Inputs() []ValueInfo { return slices.Clone(s.inputs) }

// Outputs describes the outputs of Run, in the order of the graph or of Options.Outputs.
func (s *Session) Outputs() []ValueInfo { return slices.Clone(s.outputs) }

// Provider returns the provider that the session runs on, CPU or CUDA.
func (s *Session) Provider() string { return s.provider }

// Close waits for the runs in flight and frees the session. A second Close does nothing.
func (s *Session) Close() error { return CloseAll(s) }

// CloseAll closes sessions and then trims memory once for all of them, because trimming takes longer than freeing a
// small session. It does not trim where the graphs of all of them stay compiled (NewCachedSession).
func CloseAll(all ...*Session) error {
	var errs []error
	freed := false
	for _, s := range all {
		graphs, err := s.fixed.close()
		errs = append(errs, err)
		for _, sized := range graphs {
			_, err := sized.free()
			errs = append(errs, err)
		}
		some, err := s.free()
		freed, errs = freed || some, append(errs, err)
	}

	if freed {
		errs = append(errs, TrimMemory())
	}

	return errors.Join(errs...)
}

// free waits for the runs in flight, closes the session and reports whether it freed a compiled graph.
func (s *Session) free() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas == nil {
		return false, nil
	}

	all := s.replicas
	if s.replicas = nil; s.cached != nil {
		all = s.cached.release()
	}

	if err := closeReplicas(all); err != nil {
		return true, s.errorf("closing: %s", plain(err))
	}

	return len(all) > 0, nil
}

// RunOnce runs a model once, in a cached session. See Session.Run.
func RunOnce(ctx context.Context, model *onnx.ModelProto, o Options, feeds tensor.Map) (tensor.Map, error) {
	s, err := NewCachedSession(model, o)
	if err != nil {
		return nil, err
	}
	out, err := s.Run(ctx, feeds)
	return out, errors.Join(err, s.Close())
}
