package client

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// The key of a remembered value covers all inputs of its program: the program's number, the rows, the name, shape and
// exact bits of each input, whatever its source, and the client of host functions. Keys differ for numbers that compare
// as equal (0 and -0), and for names and values whose concatenations are equal.
func TestDigestsTellInputsApart(t *testing.T) {
	row := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
	places := map[method.Input]func(in *inputs, v tensor.Map){
		{Kind: method.ParamInput, Name: "a"}:     func(in *inputs, v tensor.Map) { in.now = v },
		{Kind: method.ReceivedInput, Name: "a"}:  func(in *inputs, v tensor.Map) { in.local.Received = v },
		{Kind: method.BroadcastInput, Name: "a"}: func(in *inputs, v tensor.Map) { in.local.Broadcast = v },
		{Kind: method.StateInput, Name: "a"}:     func(in *inputs, v tensor.Map) { in.local.State = v },
		{Kind: method.BeforeInput, Name: "a"}:    func(in *inputs, v tensor.Map) { in.state.Own = v },
		method.MemoryImage: func(in *inputs, v tensor.Map) {
			in.local.Memory = func() (tensor.Map, error) { return tensor.Map{"image": v["a"]}, nil }
		},
	}
	given := func(source method.Input, v *tensor.Tensor) inputs {
		in := inputs{local: &method.Local{}}
		places[source](&in, tensor.Map{"a": v})
		return in
	}
	values := []*tensor.Tensor{row(0), row(float32(math.Copysign(0, -1))), row(math.Float32frombits(0x7fc00001)),
		row(math.Float32frombits(0x7fc00002)), row(1, 2), tensor.Of([]float32{1, 2}, 1, 2),
		tensor.Of([]float32{1, 2}, 2, 1), tensor.OfInts([]int64{0}, 1), tensor.OfInts([]int64{1}, 1), row(),
		tensor.Of(nil, 0, 3)}
	seen := map[[sha256.Size]byte]string{}
	note := func(what string, p *program, in inputs, more ...int64) {
		t.Helper()
		key, err := p.digest(in, more...)
		again, err2 := p.digest(in, more...)
		if err != nil || err2 != nil || key != again {
			t.Fatalf("%s: %v %v", what, err, err2)
		}
		if other, known := seen[key]; known {
			t.Errorf("one key for %s and %s", what, other)
		}
		seen[key] = what
	}
	for source := range places {
		for i, v := range values {
			note(source.String()+" "+values[i].String()+string(rune('a'+i)),
				&program{number: 1, inputs: []method.Input{source}}, given(source, v))
		}
	}
	a, b := method.Input{Kind: method.ParamInput, Name: "a"}, method.Input{Kind: method.ParamInput, Name: "b"}
	in := given(a, row(1))
	note("another program", &program{number: 2, inputs: []method.Input{a}}, in)
	note("rows 7", &program{number: 2, inputs: []method.Input{a}}, in, 7)
	note("rows 8", &program{number: 2, inputs: []method.Input{a}}, in, 8)
	note("no input", &program{number: 2}, in)
	call := method.HostCall{Name: "f", Args: []method.Input{a}}
	host := &program{number: 2, inputs: []method.Input{call.Input()}, hosts: []method.HostCall{call}}
	note("a host function", host, in)
	in.local.Task.Client = 1
	note("a host function of another client", host, in)
	two := inputs{local: &method.Local{}, now: tensor.Map{"a": row(1), "b": row(2)}}
	note("a, b", &program{number: 3, inputs: []method.Input{a, b}}, two)
	two.now = tensor.Map{"a": row(2), "b": row(1)}
	note("b, a", &program{number: 3, inputs: []method.Input{a, b}}, two)
}

// weightsLocation is a backbone that has nothing but the location of its weights, for a compiler.
type weightsLocation struct {
	spec.Backbone
	dir string
}

func (l weightsLocation) WeightsDir() string { return l.dir }

// If somebody replaces the weights during a run, the run ends with an error that names the file. A graph compiled later
// would have other weights than the graphs before it.
func TestWeightsReplacedDuringARun(t *testing.T) {
	orttest.RequireLibrary(t)
	b := weightsLocation{dir: t.TempDir()}
	path := filepath.Join(b.dir, "w")
	put := func(v float32) {
		filetest.Write(t, path+".new", string(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))))
		goldentest.NoError(t, os.Rename(path+".new", path))
	}
	c := newCompiler(&spec.Experiment{}, Settings{}, caches{})
	defer c.close()
	compile := func() (*program, error) {
		g := graph.New()
		w := g.Weight("w", graph.Float, graph.External{File: "w", Length: 4}, 1)
		y := g.Input("x", graph.Float, graph.Static(1)).Mul(w)
		s := method.NewScope(method.ClientSpec{}, nil)
		return c.compile(ValueProgram, b, s, []graph.Output{{Name: "y", Node: y}})
	}
	put(1)
	first, err := compile()
	if err == nil {
		_, err = compile()
	}
	goldentest.NoError(t, err)
	put(2)
	_, err = compile()
	goldentest.WantErrorOf(t, "a third graph", err, path, "changed while it is used")
	if _, err := first.session(1); err != nil { // it has the old weights, like all others
		t.Error(err)
	}
}
