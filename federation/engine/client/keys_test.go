package client

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// What a worker remembers of a program is found by all that the program reads: its number, the rows, each input's name,
// shape and very bits, from wherever the input comes, and the client of host functions. Numbers that compare as equal
// are told apart, and so are names and values that run into each other.
func TestDigestsTellInputsApart(t *testing.T) {
	row := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
	of := func(l method.Local, s message.ClientState) inputs { return inputs{l: &l, s: s} }
	named := func(v *tensor.Tensor) tensor.Map { return tensor.Map{"a": v} }
	places := map[string]func(v *tensor.Tensor) inputs{
		method.ParamInput + "/a": func(v *tensor.Tensor) inputs {
			return inputs{l: &method.Local{}, now: named(v)}
		},
		method.ReceivedInput + "/a": func(v *tensor.Tensor) inputs {
			return of(method.Local{Received: named(v)}, message.ClientState{})
		},
		method.BroadcastInput + "/a": func(v *tensor.Tensor) inputs {
			return of(method.Local{Broadcast: named(v)}, message.ClientState{})
		},
		method.StateInput + "/a": func(v *tensor.Tensor) inputs {
			return of(method.Local{State: named(v)}, message.ClientState{})
		},
		method.BeforeInput + "/a": func(v *tensor.Tensor) inputs {
			return of(method.Local{}, message.ClientState{Own: named(v)})
		},
		method.MemoryImage: func(v *tensor.Tensor) inputs {
			return of(method.Local{Memory: func() (tensor.Map, error) { return tensor.Map{"image": v}, nil }},
				message.ClientState{})
		},
	}
	values := []*tensor.Tensor{row(0), row(float32(math.Copysign(0, -1))), row(math.Float32frombits(0x7fc00001)),
		row(math.Float32frombits(0x7fc00002)), row(1, 2), tensor.Of([]float32{1, 2}, 1, 2),
		tensor.Of([]float32{1, 2}, 2, 1),
		tensor.OfInts([]int64{0}, 1), tensor.OfInts([]int64{1}, 1), row(), tensor.Of(nil, 0, 3)}
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
	for name, of := range places {
		for i, v := range values {
			note(name+" "+values[i].String()+string(rune('a'+i)), &program{number: 1, inputs: []string{name}}, of(v))
		}
	}
	a, b := method.ParamInput+"/a", method.ParamInput+"/b"
	in := places[a](row(1))
	note("another program", &program{number: 2, inputs: []string{a}}, in)
	note("rows 7", &program{number: 2, inputs: []string{a}}, in, 7)
	note("rows 8", &program{number: 2, inputs: []string{a}}, in, 8)
	note("no input", &program{number: 2}, in)
	host := &program{number: 2, hosts: []method.HostCall{{Of: []string{a}}}}
	note("a host function", host, in)
	in.l.Task.Client = 1
	note("a host function of another client", host, in)
	two := inputs{l: &method.Local{}, now: tensor.Map{"a": row(1), "b": row(2)}}
	note("a, b", &program{number: 3, inputs: []string{a, b}}, two)
	two.now = tensor.Map{"a": row(2), "b": row(1)}
	note("b, a", &program{number: 3, inputs: []string{a, b}}, two)
}

// lying is a backbone of which a compiler asks where its weights lie, and nothing else.
type lying struct {
	spec.Backbone
	dir string
}

func (l lying) WeightsDir() string { return l.dir }

// A run whose weights are replaced while it goes on ends with the file's name: a graph that is compiled later would
// take other numbers than those before it.
func TestWeightsReplacedDuringARun(t *testing.T) {
	orttest.Need(t)
	b := lying{dir: t.TempDir()}
	path := filepath.Join(b.dir, "w")
	put := func(v float32) {
		orttest.Write(t, path+".new", string(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	c := newCompiler(&spec.Experiment{}, Settings{}, nil, nil)
	defer c.close()
	compile := func(key string) error {
		_, err := c.session(key, b, func() ([]graph.Output, error) {
			g := graph.New()
			w := g.Weight("w", graph.Float, graph.External{File: "w", Length: 4}, 1)
			return []graph.Output{{Name: "y", Node: g.Input("x", graph.Float, graph.Static(1)).Mul(w)}}, nil
		})
		return err
	}
	put(1)
	for _, key := range []string{"first", "second"} {
		if err := compile(key); err != nil {
			t.Fatal(err)
		}
	}
	put(2)
	orttest.OneLine(t, "a third graph", compile("third"), path, "changed while it is used")
	if err := compile("first"); err != nil { // it has the old numbers, as all others
		t.Error(err)
	}
}
