package ort

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/kernels"
	"promptfed/runtime/numerics"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Execution providers for Options.Provider. The empty string is DefaultProvider.
const (
	CPU  = "cpu"
	CUDA = "cuda"
	Auto = "auto" // CUDA if it works, otherwise CPU
)

// PlainProducts in Options.Products stands for ONNX Runtime's products.
const PlainProducts = "onnxruntime"

// DefaultProvider is the provider of options that name none. Only tests change it (orttest), before the first session.
var DefaultProvider = CPU

// Precisions for Options.Precision. The empty string is Float32.
const (
	Float32  = "float32"
	TF32     = "tf32"     // products of float32 values, rounded to 10 bits of fraction
	Float16  = "float16"  // products of weights in float16 (see onnx.LowerPrecision)
	BFloat16 = "bfloat16" // products of weights in bfloat16
)

// Precisions lists the precisions of products on a device.
func Precisions() []string { return []string{Float32, TF32, Float16, BFloat16} }

// OptLevel is the level of graph optimisation before a run. All levels compute the same function up to rounding.
type OptLevel int

// Levels of graph optimisation.
const (
	OptAll      OptLevel = iota // fusions and layout changes; the default
	OptExtended                 // fusions
	OptBasic                    // constant folding and removal of unused nodes
	OptNone                     // the graph as written
)

// Options of a session. The zero value suits many parallel runs on the CPU: one thread per run, no spinning, an arena,
// and weights that are mapped from their file.
type Options struct {
	// Provider is CPU, CUDA or Auto. CUDA fails with a message if it is not available; Auto then falls back to CPU, and
	// Session.Provider returns the choice.
	Provider string
	// Device is the number of the first CUDA device, and Devices is the number of devices (0 means 1). The devices
	// share the runs of a session: each run goes to the device with the fewest runs in flight.
	Device, Devices int
	// Precision is that of products on a CUDA device. Other operators, inputs and outputs stay in float32. The CPU has
	// Float32 alone.
	Precision string
	// MemoryLimit bounds ONNX Runtime's arena on the CUDA device in bytes; 0 means no bound. The CPU has no such bound,
	// so the provider CPU rejects it.
	MemoryLimit int64

	// IntraThreads is the number of threads of one operator; 0 means 1. With 1, a run computes on the thread of the
	// calling goroutine, and parallel runs scale with the goroutines. n > 1 takes n-1 threads per session.
	IntraThreads int
	// Spinning lets idle threads of the session busy-wait for the next operator of a run, for at most spinTime. In a
	// training step, operators that run on several threads follow each other within less time. Spinning saves waking
	// the threads while one session has the machine to itself, and otherwise takes time from other sessions. Older
	// libraries spin until the run ends.
	Spinning bool
	// Runs is the number of parallel runs in a program that has the machine to itself. If each of their threads has a
	// core, idle threads busy-wait as with Spinning. 0 means unknown: only Spinning counts.
	Runs int

	// NoArena returns every buffer to the C library as soon as an operator has finished with it, instead of keeping it
	// for the next run. Until a graph is freed, the arena holds about the peak memory of all runs that were ever in
	// parallel, per session. Without an arena, graphs with large activations took up to twice as long, because of page
	// faults.
	NoArena bool
	// Prepack stores a second copy of constant weights in the layout of the matrix kernels: one copy for all sessions
	// over one folder of external weights, otherwise private memory of the session, which also loads for longer.
	// Products of fewer than about 100 rows take a fifth to a third less time. With external weights and AVX2, AVX-512
	// or NEON, the operator Product of runtime/kernels computes them. Without Prepack, external weights are mapped from
	// their file, and all sessions share them.
	Prepack bool
	// Products names what computes products with packed weights, for comparison: an instruction set of the operator
	// Product, or PlainProducts. The empty string is the first one of kernels.InstructionSets.
	Products string
	// OptLevel is the graph optimisation.
	OptLevel OptLevel

	// Profile makes ONNX Runtime write the time of each operator in each run to a JSON file. It is the start of the
	// file's name; the file is complete when the session closes.
	Profile string

	// Placement records the provider of each operator, for Session.Placement.
	Placement bool

	// WeightsDir is the folder that the names of the graph's external data files are relative to. It may be a symbolic
	// link. Names and links inside it may not lead out of it, except links of Hugging Face's cache (see
	// onnx.LocateExternal).
	WeightsDir string
	// Outputs keeps only these outputs of the graph, in this order. ONNX Runtime then removes all nodes that they do
	// not need; it cannot do so for outputs that a Run omits. An empty list keeps all outputs.
	Outputs []string

	// Bind treats the CPU as a device like a GPU: weights are copied to its memory, and runs bind Values there. Tests
	// use it to run the code for GPUs without a GPU; on the CPU it saves nothing.
	Bind bool

	sized   bool           // the graph has fixed sizes
	capture bool           // and is captured
	lane    int            // number of the graph among equal ones that run side by side
	stream  unsafe.Pointer // of CUDA, for a captured graph
	kernels unsafe.Pointer // domain of the operators of runtime/kernels; nil for the provider's
}

// WithProvider returns options with a provider: DefaultProvider if none is named.
func (o Options) WithProvider() Options {
	o.Provider = cmp.Or(o.Provider, DefaultProvider)
	return o
}

// LossScale returns the factor by which a loss is to be multiplied before its gradient, which is to be divided by it:
// without it, small gradients vanish in float16.
func (o Options) LossScale() float64 {
	if o.Precision == Float16 {
		return 1024
	}
	return 1
}

// lowered returns the type of products of weights, 0 for float32.
func (o Options) lowered() onnx.TensorProto_DataType {
	return map[string]onnx.TensorProto_DataType{Float16: onnx.TensorProto_FLOAT16,
		BFloat16: onnx.TensorProto_BFLOAT16}[o.Precision]
}

// LowProducts reports whether products of weights are of float16 or bfloat16.
func (o Options) LowProducts() bool { return o.lowered() != 0 }

// onDevice reports whether the provider keeps weights and Values in the memory of a device, to which runs bind them.
func (o Options) onDevice() bool { return o.Provider == CUDA || o.Bind }

// OnDevice reports whether runs of a session with these options take place on a device, or as if on one (Bind).
func (o Options) OnDevice() bool { return o.WithProvider().onDevice() }

func (o Options) check() error {
	switch o.Provider {
	case CPU:
		if o.MemoryLimit != 0 {
			return fmt.Errorf("ort: a memory limit of %d bytes on provider cpu, which has none: remove the limit or "+
				"choose cuda", o.MemoryLimit)
		}
		if o.Precision != "" && o.Precision != Float32 && !o.Bind {
			return fmt.Errorf("ort: precision %s on provider cpu, which has %s alone: remove it or choose cuda",
				o.Precision, Float32)
		}
		if o.Devices > 1 && !o.Bind {
			return fmt.Errorf("ort: %d devices on provider cpu, which is one: remove them or choose cuda", o.Devices)
		}
	case CUDA, Auto:
	default:
		return fmt.Errorf("ort: unknown provider %q: use cpu, cuda or auto", o.Provider)
	}

	products := []string{"", PlainProducts}
	for _, s := range kernels.InstructionSets() {
		products = append(products, s.Name)
	}

	switch {
	case o.Precision != "" && !slices.Contains(Precisions(), o.Precision):
		return fmt.Errorf("ort: unknown precision %q: use %s", o.Precision, strings.Join(Precisions(), ", "))
	case o.Device < 0 || o.Devices < 0:
		return fmt.Errorf("ort: device %d and %d devices: devices count from 0", o.Device, o.Devices)
	case o.MemoryLimit < 0:
		return fmt.Errorf("ort: a memory limit of %d bytes: use 0 for none", o.MemoryLimit)
	case o.IntraThreads < 0:
		return fmt.Errorf("ort: %d threads: use 0 for one thread", o.IntraThreads)
	case o.OptLevel < OptAll || o.OptLevel > OptNone:
		return fmt.Errorf("ort: unknown optimisation level %d", o.OptLevel)
	case !slices.Contains(products, o.Products):
		return fmt.Errorf("ort: no products of %q: this processor has %s", o.Products, strings.Join(products[1:], ", "))
	}

	return nil
}

// products returns the instruction set with which the operator Product computes products with packed weights, if it
// does.
func (o Options) products() (set kernels.InstructionSet, own bool) {
	sets := kernels.InstructionSets()
	i := slices.IndexFunc(sets, func(s kernels.InstructionSet) bool { return o.Products == "" || o.Products == s.Name })
	if i < 0 || o.Provider != CPU || !o.Prepack || o.Bind {
		return set, false
	}
	return sets[i], true
}

// Fingerprint returns everything besides the graph and its inputs that determines the bits of the results of a session
// with these options. It resolves the provider auto (ChooseProvider). Spinning, Runs, NoArena and the number of
// parallel runs change no bit.
func (o Options) Fingerprint() (fingerprint numerics.Fingerprint, err error) {
	if o = o.WithProvider(); o.Provider == Auto {
		if o, _, err = ChooseProvider(o); err != nil {
			return fingerprint, err
		}
	}

	if err := start(o.Provider != CPU); err != nil {
		return fingerprint, err
	}

	_, version, err := Library()
	if err != nil {
		return fingerprint, err
	}

	a, err := native()
	if err != nil {
		return fingerprint, err
	}

	fingerprint = numerics.MachineFingerprint()
	fingerprint.Compilers = strings.TrimSpace(fmt.Sprintf("%s, C %s, glibc %s", fingerprint.Compilers, compilerC(),
		libraryC()))
	fingerprint.Library, fingerprint.Provider = version+", "+strings.TrimPrefix(a.buildInfo(),
		"ORT Build Info: "), o.Provider
	fingerprint.Optimization, fingerprint.Threads = levels[o.OptLevel].name, max(1, o.IntraThreads)
	_, fingerprint.OwnProducts = o.products()
	fingerprint.Prepack, fingerprint.Products = o.Prepack, o.Products
	if o.Precision != Float32 {
		fingerprint.Precision = o.Precision
	}

	return fingerprint, nil
}

// native returns the binding's session options. The caller destroys them.
func (o Options) native(weights string) (*binding.SessionOptions, error) {
	api, err := native() // it creates the arena that sessions share
	if err != nil {
		return nil, err
	}

	so, err := binding.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("ort: session options: %s", plain(err))
	}

	if err = o.fill(so, weights); err == nil && o.Provider != CUDA {
		err = api.addKernels(so, cmp.Or(o.kernels, api.kernels))
	}

	if err != nil {
		err = fmt.Errorf("ort: session options: %s", plain(err))
	} else if o.Provider == CUDA {
		err = o.addCUDA(so, api)
	}

	if err != nil {
		so.Destroy()
		return nil, err
	}

	return so, nil
}

// spinTime is in microseconds. In steps of ViT-B/16's text tower with 10 classes, consecutive operators on one thread
// take at most 105 in total.
const spinTime = "200"

func (o Options) spins() bool {
	return o.Spinning || o.Runs > 0 && o.IntraThreads > 1 && o.Runs*o.IntraThreads <= runtime.GOMAXPROCS(0)
}

func (o Options) fill(so *binding.SessionOptions, weights string) error {
	err := cmp.Or(so.SetIntraOpNumThreads(max(1, o.IntraThreads)),
		so.SetGraphOptimizationLevel(levels[o.OptLevel].native), so.SetCpuMemArena(!o.NoArena),
		so.SetMemPattern(false)) // its block for all values would add to the arena
	if o.Profile != "" {
		err = cmp.Or(err, so.EnableProfiling(o.Profile))
	}

	for _, entry := range []struct {
		set        bool
		key, value string
	}{
		{true, "session.intra_op.allow_spinning", flag(o.spins())},
		{true, "session.disable_prepacking", flag(!o.Prepack)},
		{!o.NoArena, "session.use_env_allocators", "1"},
		{o.spins(), "session.intra_op.spin_duration_us", spinTime},
		{o.spins(), "session.force_spinning_stop", "1"},
		{o.Placement, "session.record_ep_graph_assignment_info", "1"},
		{weights != "", "session.model_external_initializers_file_folder_path", weights},
	} {
		if entry.set {
			err = cmp.Or(err, so.AddSessionConfigEntry(entry.key, entry.value))
		}
	}

	return err
}

// addCUDA adds the CUDA provider. Products of float32 values are exact unless the precision is TF32, so that gradients
// are as exact as on the CPU.
func (o Options) addCUDA(so *binding.SessionOptions, api *api) error {
	cuda, err := binding.NewCUDAProviderOptions()
	if err != nil {
		return noCUDA(err)
	}
	defer cuda.Destroy()

	settings := map[string]string{"device_id": strconv.Itoa(o.Device), "use_tf32": flag(o.Precision == TF32),
		"arena_extend_strategy": "kSameAsRequested"}
	if o.MemoryLimit > 0 {
		settings["gpu_mem_limit"] = strconv.FormatInt(o.MemoryLimit, 10)
	}

	if o.capture {
		settings["enable_cuda_graph"] = "1"
	}

	if err = cuda.Update(settings); err == nil && o.stream != nil {
		err = api.setStream(cuda, o.stream)
	}

	if err == nil {
		err = so.AppendExecutionProviderCUDA(cuda)
	}

	if err != nil {
		return noCUDA(err)
	}

	if domain, err := api.deviceKernels(); err == nil { // otherwise no graph has them (Options.Kernels)
		return api.addKernels(so, domain)
	}

	return nil
}

func noCUDA(err error) error {
	todo := "run `make library-cuda`, or install Microsoft's GPU build of ONNX Runtime and set " + LibraryVariable +
		" to its library file"
	if missing := missingCUDA(); len(missing) > 0 {
		todo = fmt.Sprintf("missing here: %s: install CUDA 13, cuDNN 9 and NVIDIA's driver, where the loader finds "+
			"them (LD_LIBRARY_PATH)", strings.Join(missing, ", "))
	}

	return fmt.Errorf("ort: provider cuda is not available in %s (%s): %s, or use provider cpu", environment.path,
		plain(err), todo)
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// ChooseProvider finds the provider that options will run on, before any work depends on it: it compiles and runs a
// graph of one node. Auto becomes CUDA, or else CPU with one device and no memory limit, and then why is the reason
// against CUDA. Sessions with the returned options run on that one provider or fail, so a run never uses two providers.
func ChooseProvider(options Options) (chosen Options, why error, err error) {
	options = options.WithProvider()
	if err := options.check(); err != nil || options.Provider == CPU {
		return options, nil, err
	}

	asked := options.Provider
	options.Provider = CUDA
	if why = options.probe(); why == nil || asked == CUDA {
		return options, nil, why
	}

	options.Provider, options.MemoryLimit, options.Devices = CPU, 0, 1
	return options, why, options.check()
}

// probe runs a graph of one node with the options.
func (o Options) probe() error {
	o.WeightsDir, o.Outputs = "", nil
	out, err := RunOnce(context.Background(), probeModel(), o, tensor.Map{"x": tensor.Of([]float32{2}, 1)})
	if err == nil && out["y"].Data[0] != 2 {
		err = fmt.Errorf("ort: provider %s computes %g for 2 in a graph of one node", o.Provider, out["y"].Data[0])
	}
	return err
}

// probeModel returns the model y = x for x [1].
func probeModel() *onnx.ModelProto {
	value := func(name string) *onnx.ValueInfoProto {
		return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
			TensorType: &onnx.TypeProto_Tensor{ElemType: int32(onnx.TensorProto_FLOAT),
				Shape: &onnx.TensorShapeProto{Dim: []*onnx.TensorShapeProto_Dimension{{}}}}}}}
	}

	return &onnx.ModelProto{IrVersion: 8, OpsetImport: []*onnx.OperatorSetIdProto{{Version: 13}},
		Graph: &onnx.GraphProto{
			Name: "probe", Node: []*onnx.NodeProto{{OpType: "Identity", Input: []string{"x"}, Output: []string{"y"}}},
			Input:  []*onnx.ValueInfoProto{value("x")},
			Output: []*onnx.ValueInfoProto{value("y")}}}
}

// levels are the names of OptLevels, and their values in the binding.
var levels = []struct {
	name   string
	native binding.GraphOptimizationLevel
}{
	OptAll:      {"all", binding.GraphOptimizationLevelEnableAll},
	OptExtended: {"extended", binding.GraphOptimizationLevelEnableExtended},
	OptBasic:    {"basic", binding.GraphOptimizationLevelEnableBasic},
	OptNone:     {"none", binding.GraphOptimizationLevelDisableAll},
}

// ParseOptLevel returns the optimisation level of a name: all, extended, basic or none.
func ParseOptLevel(name string) (OptLevel, error) {
	for i, l := range levels {
		if l.name == name {
			return OptLevel(i), nil
		}
	}
	return 0, fmt.Errorf("unknown optimisation level %q: use all, extended, basic or none", name)
}
