package fromfile_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/tensor"
)

type options = methodtest.Options

// The example is PromptFL: its numbers are those of PromptFL's two rounds by hand.
func TestTwoRoundsByHand(t *testing.T) {
	second0 := methodtest.Second0
	methodtest.CheckHandExamples(t, fromfile.Methods, []methodtest.HandExample{{Method: "onnx",
		Options: options{"tokens": 1}, LR: methodtest.HandLR, First: map[string]float64{"ctx": 0},
		Want: map[string]float64{"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": 0.6,
			"r0/c0/upload/ctx": 0.75, "r0/c1/upload/ctx": -0.5625, "r0/merged/ctx": -0.125, "r1/c0/upload/ctx": second0,
			"r0/c0/eval/logits#0": 0.5 / math.Sqrt(1.015625)}}})
}

// built returns the error of a method file.
func built(content []byte, more options) error {
	_, err := methods.Build("onnx", nil, methodtest.Merge(options{"file": string(layer.EmbedFile("m.onnx", content))},
		more))
	return err
}

// sound is the witness with the most parts.
func sound(t testing.TB, name string) []byte {
	b, err := methodtest.ONNXFiles[name]()
	goldentest.NoError(t, err)
	return b
}

// changed is a sound file with other metadata or another model.
func changed(t testing.TB, name string, meta func(*fromfile.Metadata), model func(*onnx.ModelProto)) []byte {
	m, err := onnx.Unmarshal(sound(t, name))
	goldentest.NoError(t, err)
	if meta != nil {
		var x fromfile.Metadata
		goldentest.NoError(t, json.Unmarshal([]byte(m.MetadataProps[0].Value), &x))
		meta(&x)
		m.MetadataProps[0].Value = string(goldentest.JSON(t, x))
	}
	if model != nil {
		model(m)
	}
	return onnxtest.Marshal(t, m)
}

// A file that no client may run is refused in one line, which names what is wrong.
func TestBadFiles(t *testing.T) {
	meta := func(f func(*fromfile.Metadata)) []byte { return changed(t, "scaffold", f, nil) }
	model := func(f func(*onnx.ModelProto)) []byte { return changed(t, "scaffold", nil, f) }
	node := func(op string, more ...string) []byte { // an operator in front of the loss
		return model(func(m *onnx.ModelProto) {
			last := m.Graph.Output[0].Name
			m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: op, Domain: strings.Join(more, ""),
				Input: []string{last}, Output: []string{"behind"}})
		})
	}
	graphOf := func(parameter fromfile.Parameter, outputs func(g *graph.Graph) []graph.Output) []byte {
		b, err := methodtest.ONNXFile(fromfile.Metadata{Parameters: []fromfile.Parameter{parameter}}, outputs)
		goldentest.NoError(t, err)
		return b
	}
	ctx := fromfile.Parameter{Name: "ctx", Owner: "shared", Tokens: 3,
		Tensor: fromfile.Tensor{Shape: []fromfile.Size{{Sym: "T"}, {Sym: "w"}}}}
	plain := func(change func(g *graph.Graph, image, text, z graph.Node) (logits, loss graph.Node)) []byte {
		return graphOf(ctx, func(g *graph.Graph) []graph.Output {
			image := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
			text := g.Input("text/ctx", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")})
			logits, loss := change(g, image, text, image.MatMul(text.Transpose(1, 0)))
			return []graph.Output{{Name: "logits", Node: logits}, {Name: "loss", Node: loss}}
		})
	}
	loss := func(lossOf func(scores graph.Node) graph.Node) []byte {
		return plain(func(_ *graph.Graph, _, _, z graph.Node) (graph.Node, graph.Node) { return z, lossOf(z) })
	}
	// FedOTP's file has an output similarity and an input function/plan. No input is another function.
	function := func(name, function, options string, arguments ...string) []byte {
		return changed(t, "fedotp", func(m *fromfile.Metadata) {
			m.Functions[name] = fromfile.Function{Function: function, Of: arguments, Options: []byte(options)}
			m.Parameters = append(m.Parameters, fromfile.Parameter{Name: "x", Owner: "shared",
				Tensor: fromfile.Tensor{Shape: []fromfile.Size{{N: 2}, {N: 3}, {N: 3}, {N: 4}}}})
		}, nil)
	}
	for want, b := range map[string][]byte{
		"not an ONNX model":      []byte("name: x"),
		"no metadata promptfed":  model(func(m *onnx.ModelProto) { m.MetadataProps = nil }),
		"name has 61 bytes":      meta(func(m *fromfile.Metadata) { m.Name = strings.Repeat("x", 61) }),
		"version 7 is not known": meta(func(m *fromfile.Metadata) { m.Version = 7 }),
		"unknown field":          model(func(m *onnx.ModelProto) { m.MetadataProps[0].Value = `{"x":1}` }),
		"text behind the JSON":   model(func(m *onnx.ModelProto) { m.MetadataProps[0].Value += "{}" }),
		"owner is":               meta(func(m *fromfile.Metadata) { m.Parameters[0].Owner = "mine" }),
		`projects off "param/ctx", which begins at words`: meta(func(m *fromfile.Metadata) {
			m.Parameters[0].Words = "a photo of a"
			m.Functions = map[string]fromfile.Function{"f": {Function: "project", Of: []string{"logits", "param/ctx"}}}
		}),
		"declared twice": meta(func(m *fromfile.Metadata) { m.Parameters = append(m.Parameters, m.Parameters[0]) }),
		"words need shape": meta(func(m *fromfile.Metadata) {
			m.Parameters[0].Words, m.Parameters[0].Value = "a photo of a", 1
		}),
		"a state has no std": meta(func(m *fromfile.Metadata) { m.State["c"] = fromfile.Tensor{Like: "ctx", Std: 1} }),
		"tokens is 0":        meta(func(m *fromfile.Metadata) { m.Parameters[0].Tokens = 0 }),
		"is no size":         meta(func(m *fromfile.Metadata) { m.Parameters[0].Shape[1].Sym = "Q" }),
		"B must be the first axis only": meta(func(m *fromfile.Metadata) {
			m.Noise = map[string]fromfile.Noise{"x": {[]fromfile.Size{{N: 2}, {Sym: "B"}}, "normal"}}
		}),
		"257 entries of one kind": meta(func(m *fromfile.Metadata) { m.Parameters = make([]fromfile.Parameter, 257) }),
		"[16777216 w] is too large": meta(func(m *fromfile.Metadata) {
			m.State["s"] = fromfile.Tensor{Shape: []fromfile.Size{{N: 1 << 24}, {Sym: "w"}}}
		}),
		"all together 134217728": meta(func(m *fromfile.Metadata) { // nine tensors of an eighth of that
			for i := range 9 {
				m.State[fmt.Sprint("s", i)] = fromfile.Tensor{Shape: []fromfile.Size{{N: 1 << 24}}}
			}
		}),
		"std is -1":                    meta(func(m *fromfile.Metadata) { m.Parameters[0].Std = -1 }),
		"mean is":                      meta(func(m *fromfile.Metadata) { m.Mean = "median" }),
		`input "state/c" is not`:       meta(func(m *fromfile.Metadata) { m.State = nil }),
		`input "uploads/up/dc" is not`: meta(func(m *fromfile.Metadata) { m.Up = nil }),
		`output "next/down/c" is not`: changed(t, "scaffold", func(m *fromfile.Metadata) { m.Down = nil },
			func(m *onnx.ModelProto) {
				m.Graph.Input = slices.DeleteFunc(m.Graph.Input, func(v *onnx.ValueInfoProto) bool {
					return v.Name == "down/c"
				})
				m.Graph.Initializer = append(m.Graph.Initializer, &onnx.TensorProto{Name: "down/c",
					DataType: int32(graph.Float), FloatData: []float32{0}})
			}),
		`output "merged/local" is not`: changed(t, "fedpha", nil, func(m *onnx.ModelProto) { // which is private
			m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Identity", Input: []string{"logits"},
				Output: []string{"merged/local"}})
			m.Graph.Output = append(m.Graph.Output, &onnx.ValueInfoProto{Name: "merged/local"})
		}),
		"there is no such output": meta(func(m *fromfile.Metadata) { m.Up["more"] = m.Up["dc"] }),
		"like names":              meta(func(m *fromfile.Metadata) { m.State["c"] = fromfile.Tensor{Like: "x"} }),
		"detach names":            meta(func(m *fromfile.Metadata) { m.Detach = []string{"nothing"} }),
		"output next/state/c is FLOAT[4,64]": meta(func(m *fromfile.Metadata) {
			m.State["c"] = fromfile.Tensor{Shape: []fromfile.Size{{N: 1}, {Sym: "w"}}}
		}),
		"mass is 0.001 to 1, eps 0.0001 to 10000":     function("plan", "transport", `{"mass":2}`, "similarity"),
		"eps 0.0001 to 10000":                         function("plan", "transport", `{"eps":0}`, "similarity"),
		"iters 1 to 10000":                            function("plan", "transport", `{"iters":0}`, "similarity"),
		"10000, threshold from 0":                     function("plan", "transport", `{"iters":10001}`, "similarity"),
		"threshold from 0":                            function("plan", "transport", `{"threshold":-1}`, "similarity"),
		"stop image, pair or code":                    function("plan", "transport", `{"stop":"x"}`, "similarity"),
		"is not one of cosine":                        function("f", "svd", ""),
		"has 2 arguments, not 1":                      function("f", "project", "", "param/ctx"),
		`reads "x", which is neither`:                 function("f", "cross_entropy", "", "x"),
		"cross_entropy takes [B,C]":                   function("plan", "cross_entropy", "", "image"),
		"takes similarities [N,B,C,M]":                function("plan", "transport", "", "param/x"),
		`function "a b": a name has letters`:          function("a b", "cross_entropy", "", "logits"),
		`function "f": options: "json: unknown field`: function("f", "project", `{"x":1}`, "param/ctx", "param/ctx"),
		`text "a/": a name has letters`: meta(func(m *fromfile.Metadata) {
			m.Texts = map[string]fromfile.Layout{"a/": {}}
		}),
		`text "x" is no parameter`: meta(func(m *fromfile.Metadata) {
			m.Texts = map[string]fromfile.Layout{"x": {Position: "front"}}
		}),
		"branches and loops are refused": node("Loop"),
		"draws random numbers":           node("RandomNormalLike"),
		"has no definition here":         node("NonMaxSuppression"),
		"is not allowed in a file":       node("Thing", "mine"),
		"of domain \"com.microsoft\"":    node("FusedMatMul", "com.microsoft"),
		"functions or training graphs": model(func(m *onnx.ModelProto) {
			m.Functions = []*onnx.FunctionProto{{Name: "f", Domain: "mine"}}
		}),
		"is in another file": model(func(m *onnx.ModelProto) {
			x := &onnx.TensorProto{Name: "away", DataType: int32(graph.Float), Dims: []int64{1}}
			onnx.SetExternal(x, onnx.External{File: "w.bin", Length: 4})
			m.Graph.Initializer = append(m.Graph.Initializer, x)
		}),
		"input \"secret\" is not known": model(func(m *onnx.ModelProto) {
			m.Graph.Input = append(m.Graph.Input, &onnx.ValueInfoProto{Name: "secret"})
		}),
		"no output loss []": model(func(m *onnx.ModelProto) { m.Graph.Output = m.Graph.Output[:1] }),
		// Graphs.
		"scores are computed in tests too": plain(func(g *graph.Graph, _, _, z graph.Node) (graph.Node, graph.Node) {
			return z.Mul(g.Input("lr", graph.Float, graph.Static())), z.Mean()
		}),
		"must be [B,C] with C 3": plain(func(g *graph.Graph, _, _, z graph.Node) (graph.Node, graph.Node) {
			return z.Mean(0), z.Mean()
		}),
		"must be a float32 scalar []": loss(func(z graph.Node) graph.Node { return z.Mean(0) }),
		"with T 4, w 64, D 96, C 3: Reshape": loss(func(z graph.Node) graph.Node {
			return z.Mean(0).Reshape(10).Mean() // for ten classes
		}),
		"elements are allowed": loss(func(z graph.Node) graph.Node { return z.Mean().Expand(1<<15, 1<<15).Mean() }),
		"[B,16777216,1099511627776]; at": loss(func(z graph.Node) graph.Node {
			return z.Mean(-1).Reshape(-1, 1, 1).Expand(1, 1<<24, 1<<40).Mean() // 2^64 elements for a row
		}),
		"not known before it runs": loss(func(z graph.Node) graph.Node {
			return z.Graph().Apply(graph.Standard, "NonZero", nil, z).Cast(graph.Float).Mean()
		}),
		"more than 256 summands": loss(func(z graph.Node) graph.Node {
			sum := z.Mean()
			for range 100 {
				sum = sum.Add(sum) // 2^100 summands
			}
			return sum
		}),
		"all results together": loss(func(z graph.Node) graph.Node {
			sum := z.Mean().Expand(1<<12, 1<<12)
			for range 20 {
				sum = sum.Exp()
			}
			return sum.Mean()
		}),
		"no gradient rule for operator": loss(func(z graph.Node) graph.Node {
			return z.Graph().Apply(graph.Standard, "Hardmax", nil, z).Mean()
		}),
		"nothing that can be trained": loss(func(z graph.Node) graph.Node {
			return z.Graph().Input("label", graph.Int64, graph.Shape{graph.Sym("B")}).Cast(graph.Float).Mean()
		}),
		"input image is FLOAT[B,512] in the file": graphOf(ctx, func(g *graph.Graph) []graph.Output {
			x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(512)})
			text := g.Input("text/ctx", graph.Float, graph.Shape{graph.Sym("C"), graph.StaticDim(512)})
			z := x.MatMul(text.Transpose(1, 0))
			return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: z.Mean()}}
		}),
		"not a summand of loss": graphOf(ctx, func(g *graph.Graph) []graph.Output {
			x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
			z := x.MatMul(g.Input("text/ctx", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")}).Transpose(1, 0))
			return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: z.Mean()},
				{Name: "more", Node: z.Square().Mean()}}
		}),
		"depends on itself": graphOf(ctx, func(g *graph.Graph) []graph.Output {
			x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
			text := g.Input("text/own", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")})
			z := x.MatMul(text.Transpose(1, 0))
			own := g.Input("param/ctx", graph.Float, graph.Shape{graph.Sym("T"), graph.Sym("w")}).Mul(text.Mean())
			return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: z.Mean()},
				{Name: "prompt/own", Node: own}}
		}),
	} {
		goldentest.WantError(t, built(b, nil), want)
	}
	for _, b := range [][]byte{function("plan", "transport", `{"mass":1,"threshold":0}`, "similarity"),
		meta(func(m *fromfile.Metadata) { m.State["s"] = fromfile.Tensor{Shape: []fromfile.Size{{N: 1 << 24}}} })} {
		goldentest.NoError(t, built(b, nil)) // numbers at the ends of what is allowed
	}
	if name := fromfile.Name(meta(func(m *fromfile.Metadata) { m.Name = strings.Repeat("x", 61) })); name != "" {
		t.Errorf("a refused file has the name %s", name)
	}
	if _, _, err := layer.EmbedFile(strings.Repeat("x", 300)+".onnx", nil).Content(); err != nil {
		t.Error(err)
	}
	for _, f := range []string{"", "m.onnx", "data:application/octet-stream;name=a/b;base64,AA==",
		"data:application/octet-stream;name=a;base64,?"} {
		if _, err := methods.Build("onnx", nil, options{"file": f}); err == nil {
			t.Errorf("%q was taken", f)
		}
	}
}

// Sizes of a client bind a file's graph: lengths of private prompts differ between clients.
func TestSizesBind(t *testing.T) {
	m := methodtest.Build(t, "onnx", nil, options{"file": methodtest.ONNXOption("fedpha"), "tokens": 7,
		"private_tokens": []int{4, 16}})
	for client, length := range []int{4, 16, 4} {
		spec := method.ClientSpec{Client: client, Width: 8, Dim: 6, Classes: 3}
		if p := m.Params(spec); fmt.Sprint(p[0].Shape, p[1].Shape) != fmt.Sprint([]int{7, 8}, []int{length, 8}) {
			t.Errorf("client %d: %v and %v", client, p[0].Shape, p[1].Shape)
		}
	}
}

// A step adds the words that a prompt begins at to the parameter, which is the offset from them.
func TestWordsOfSteps(t *testing.T) {
	m := methodtest.Build(t, "onnx", nil, options{"file": methodtest.ONNXOption("kgcoop-words")})
	_, _, loss := method.LossOf(m, layer.PlaceholderClient)
	words := method.Words{Text: "a photo of a"}
	if !slices.ContainsFunc(graph.Reachable(loss), func(op *graph.Op) bool { return op.Placeholder() == words }) {
		t.Errorf("the loss does not read %v", words)
	}
}

// What the server computes is finite, or an error before the run's state changes.
func TestMergeIsFinite(t *testing.T) {
	m := methodtest.Build(t, "onnx", nil, options{"file": methodtest.ONNXOption("scaffold")})
	prompt := tensor.New(3, 4)
	g := &method.Global{Width: 4, Classes: 2, Clients: 1, Shared: tensor.Map{"ctx": prompt},
		Broadcast: tensor.Map{"file/c": tensor.New(3, 4)}}
	up := method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.New(3, 4)},
		Extra: tensor.Map{"file/dc": tensor.New(3, 4)}}
	up.Shared["ctx"].Data[0] = 1
	computed := tensor.New(2 * 3 * 4) // merged/ctx and next/down/c
	g.Compute = func(tensor.Map, func(*method.Scope) graph.Node) (*tensor.Tensor, error) { return computed, nil }
	computed.Data[14] = float32(math.Inf(1))
	const want = "scaffold.onnx: output next/down/c holds +Inf at element 2"
	if err := m.Merge(g, []method.Upload{up}); err == nil || err.Error() != want || g.Shared["ctx"] != prompt ||
		prompt.Data[0] != 0 {
		t.Errorf("%v, want %s; the server has %v", err, want, g.Shared["ctx"])
	}
	computed.Data[14] = 5
	if err := m.Merge(g, []method.Upload{up}); err != nil || g.Broadcast["file/c"].Data[2] != 5 {
		t.Errorf("%v, and the server sends %v", err, g.Broadcast["file/c"])
	}
}

// FuzzFile reads any bytes as a method's file: it never panics, and errors have one line.
func FuzzFile(f *testing.F) {
	for name := range methodtest.ONNXFiles {
		f.Add(sound(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := built(b, nil); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	})
}

// FuzzMetadata reads any metadata of a sound graph.
func FuzzMetadata(f *testing.F) {
	for name := range methodtest.ONNXFiles {
		m, err := onnx.Unmarshal(sound(f, name))
		goldentest.NoError(f, err)
		f.Add(name, m.MetadataProps[0].Value)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		if methodtest.ONNXFiles[name] == nil || !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			return
		}
		b := changed(t, name, nil, func(m *onnx.ModelProto) { m.MetadataProps[0].Value = text })
		if err := built(b, nil); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	})
}
