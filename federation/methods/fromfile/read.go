package fromfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// file is a checked method file.
type file struct {
	meta     Metadata
	graph    *graph.File
	terms    map[graph.Node]string // scalar outputs beside the loss, by value
	detached map[string]bool
	inputs   map[graph.Node]port
	outputs  []port
	calls    map[string]call // of functions
}

// Bounds of a graph, before and after sizes are bound.
const (
	maxNodes    = 20000
	maxElements = 1 << 24 // of one value, for a batch of one
	maxAll      = 1 << 27 // of all values together, of which each counts as at least minElements
	minElements = 512
	maxSums     = 256 // summands of the loss
)

// random are operators whose result is drawn when the graph runs.
var random = []string{"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
	"RandomUniformLike"}

// checked holds the methods of files that were read, by content: a configuration is checked several times.
var checked struct {
	sync.Mutex
	files map[string]*file
}

// Check checks the content of a method's file.
func Check(content []byte) error {
	_, err := open(content)
	return err
}

// open returns the checked method of a file's content.
func open(content []byte) (*file, error) {
	digest := layer.Digest(content)
	checked.Lock()
	defer checked.Unlock()
	if f := checked.files[digest]; f != nil {
		return f, nil
	}

	methodFile, err := read(content)
	if err == nil {
		err = ONNX{file: methodFile}.check()
	}

	if err != nil {
		return nil, err
	}

	if checked.files == nil || len(checked.files) > 100 {
		checked.files = map[string]*file{}
	}

	checked.files[digest] = methodFile
	return methodFile, nil
}

func read(content []byte) (*file, error) {
	model, err := onnx.Unmarshal(content)
	if err != nil {
		return nil, err
	}

	if err := checkModel(model); err != nil {
		return nil, err
	}

	methodFile := &file{terms: map[graph.Node]string{}, detached: map[string]bool{},
		inputs: map[graph.Node]port{}, calls: map[string]call{}}
	if methodFile.meta, err = metadataOf(model); err != nil {
		return nil, err
	}

	if methodFile.graph, err = graph.ReadModel(model); err != nil {
		return nil, err
	}

	made := map[string]bool{}
	for _, n := range model.Graph.Node {
		for _, name := range n.Output {
			made[name] = true
		}
	}

	for _, name := range methodFile.meta.Detach {
		if !made[name] {
			return nil, fmt.Errorf("detach names %.60q, which is the result of no operator", name)
		}
		methodFile.detached[name] = true
	}

	if err := methodFile.checkNames(); err != nil {
		return nil, err
	}

	return methodFile, nil
}

// checkModel refuses what no method needs: its graph is a stranger's.
func checkModel(model *onnx.ModelProto) error {
	if len(model.Functions) > 0 || len(model.TrainingInfo) > 0 {
		return fmt.Errorf("it has functions or training graphs of its own; export one graph of ONNX's own operators")
	}

	if n := max(len(model.Graph.Output), len(model.Graph.Input)); n > 2*maxDeclared {
		return fmt.Errorf("it has %d inputs or outputs; at most %d are allowed", n, 2*maxDeclared)
	}

	if len(model.Graph.SparseInitializer) > 0 {
		return fmt.Errorf("it has sparse constants; export plain ones")
	}

	known := map[string]bool{}
	for _, d := range graph.Defs() {
		known[d.Domain+" "+d.Kind] = true
	}

	nodes := 0
	for x := range onnx.Messages(model) {
		switch message := x.(type) {
		case *onnx.TensorProto:
			if onnx.IsExternal(message) {
				return fmt.Errorf("tensor %.60q is in another file; export all constants inside", message.Name)
			}
		case *onnx.NodeProto:
			if nodes++; nodes > maxNodes {
				return fmt.Errorf("its graph has more than %d operators", maxNodes)
			}
			at := fmt.Sprintf("operator %.60s (node %.60s)", message.OpType, message.Name)
			switch {
			case !onnx.Standard(message.Domain):
				return fmt.Errorf("%s of domain %.60q: use ONNX's own operators", at, message.Domain)
			case len(onnx.Subgraphs(message)) > 0 || slices.Contains([]string{"If", "Loop", "Scan"}, message.OpType):
				return fmt.Errorf("%s: branches and loops are refused; unroll it, or use a function of the engine", at)
			case slices.Contains(random, message.OpType):
				return fmt.Errorf("%s draws random numbers; declare them under noise, as an input noise/NAME", at)
			case message.OpType != "Constant" && !known[" "+message.OpType]:
				return fmt.Errorf("%s has no definition here; express it with other operators", at)
			}
		}
	}

	return nil
}

// checkNames refuses inputs and outputs of unknown names, and finds terms.
func (f *file) checkNames() error {
	outputs := map[string]graph.Node{}
	for _, o := range f.graph.Outputs {
		if _, twice := outputs[o.Name]; twice {
			return fmt.Errorf("output %.60q is there twice", o.Name)
		}
		outputs[o.Name] = o.Node
	}

	for _, o := range [][2]string{{"logits", "[B,C]"}, {"loss", "[]"}} {
		if !outputs[o[0]].OK() {
			return fmt.Errorf("it has no output %s %s", o[0], o[1])
		}
	}

	argument := map[port]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.meta.Functions)) {
		use, err := f.meta.Functions[name].decoded()
		if err != nil {
			return fmt.Errorf("function %.60q: %w", name, err)
		}

		f.calls[name] = use
		if use.function == "project" {
			if p, _ := f.meta.parameter(use.args[1].name); p.Words != "" {
				return fmt.Errorf("function %.60q projects off %.60q, which begins at words; it must have none", name,
					use.args[1])
			}
		}

		for _, arg := range use.args {
			if _, ok := outputs[arg.String()]; !ok && !f.knownInput(arg) {
				return fmt.Errorf("function %.60q reads %.60q, which is neither an output nor a known input", name, arg)
			}
			argument[arg] = true
		}
	}

	for _, name := range slices.Sorted(maps.Keys(f.meta.Texts)) {
		if !f.knownInput(parsePort("text/" + name)) {
			return fmt.Errorf("text %.60q is no parameter, no function and no output prompt/%.60s", name, name)
		}
	}

	for _, in := range f.graph.Inputs() {
		if f.inputs[in] = parsePort(in.Name()); !f.knownInput(f.inputs[in]) {
			return fmt.Errorf("input %.60q is not known or not declared; the inputs are %s", in.Name(),
				strings.Join(allInputs, ", "))
		}
	}

	for _, output := range f.graph.Outputs {
		out, declared := parsePort(output.Name), true
		f.outputs = append(f.outputs, out)
		switch {
		case out.kind == "prompt":
		case out.among(nextState, nextDown, uploaded):
			_, declared = f.meta.tensors(out)[out.name]
		case out.among(merged):
			p, ok := f.meta.parameter(out.name)
			declared = ok && p.Owner == "shared"
		case output.Name != "logits" && output.Name != "loss" && !argument[out] && !f.detached[output.Name]:
			f.terms[source(output.Node)] = strings.ReplaceAll(output.Name, "_", " ")
		}

		if !declared {
			return fmt.Errorf("output %.60q is not declared in the metadata", output.Name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(f.meta.Up)) {
		if _, ok := outputs["up/"+name]; !ok {
			return fmt.Errorf("up/%s is declared, but there is no such output", name)
		}
	}

	return nil
}

// source returns the value that a chain of Identity copies.
func source(n graph.Node) graph.Node {
	for n.Op().Kind == "Identity" && n.Op().Domain == graph.Standard {
		n = n.Op().In[0]
	}
	return n
}

// knownInput reports whether Scope, the client's turn or the server offers an input.
func (f *file) knownInput(in port) bool {
	parameter, known := f.meta.parameter(in.name)
	_, function := f.meta.Functions[in.name]
	switch in.kind {
	case "param", "received", "before":
	case "text":
		_, made := f.graph.Output("prompt/" + in.name)
		known = known || made || function
	case "function":
		known = function
	case "noise":
		_, known = f.meta.Noise[in.name]
	case "state", "down":
		_, known = f.meta.tensors(in)[in.name]
	case "uploads":
		if known = known && parameter.Owner == "shared"; in.part != "" {
			_, known = f.meta.Up[in.name]
		}
	default:
		known = slices.Contains(allInputs, in.String())
	}

	return known
}
