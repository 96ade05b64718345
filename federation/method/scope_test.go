package method

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

var towers = ClientSpec{Backbone: "toy", Classes: 5, Dim: 4, Width: 8, Patches: 3, Scale: 2, ImageSize: 7,
	VisionWidth: 6, VisionLayers: 2, TextLayers: 2, Tokens: 9}

// fails checks the error of a scope's graph.
func fails(t *testing.T, s *Scope, want string) {
	t.Helper()
	err := s.graph.Err()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func scope(params ...Param) *Scope { return NewScope(towers, params) }

// A parameter is an input under the name of the value that is read. Overrides of parameters read through to the next.
func TestParameters(t *testing.T) {
	s := scope(Param{Name: "a", Shape: []int{2, 3}}, Param{Name: "b", Owner: Private}, Param{Name: "c"})
	for n, want := range map[graph.Node]string{s.Param("a"): "param/a", s.Received().Param("a"): "received/a",
		s.LastTrained().Param("a"): "before/a", s.Broadcast("x", 1, 2): "down/x", s.State("y", 2): "kept/y"} {
		if in := InputOf(n); n.Name() != want || string(in.Kind)+"/"+in.Name != want {
			t.Errorf("%s, want %s; its source is %+v", n.Name(), want, in)
		}
	}
	if a := s.Param("a"); a.Shape().String() != "[2,3]" || s.Broadcast("z", 0, 2).Shape().String() != "[0,2]" {
		t.Errorf("%v", a.Shape())
	}
	if got := SharedNames(s.Params()); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("shared are %v", got)
	}
	outer := s.With(Override{Name: "first", TrainedValue: func(s *Scope, name string) graph.Node {
		return s.Param(name).MulScalar(2)
	}})
	inner := outer.With(Override{Name: "second", TrainedValue: func(s *Scope, name string) graph.Node {
		return s.Param(name).AddScalar(1)
	}})
	if inner.Param("a") != s.Param("a").MulScalar(2).AddScalar(1) || outer.Param("a") != s.Param("a").MulScalar(2) ||
		inner.Received().Param("a") != s.Received().Param("a").MulScalar(2).AddScalar(1) {
		t.Error("overrides do not read through")
	}
	loss := inner.Term("t", s.graph.Scalar(1))
	if terms, err := s.Built().Terms(loss); err != nil || terms[0].Name != "t second first" {
		t.Errorf("%v, %v", terms, err)
	}
	inner.AuxLoss("x", loss)
	if aux := s.Built().AuxLosses; len(aux) != 1 || aux[0].Name != "x second first" || aux[0].Node != loss {
		t.Errorf("%v", aux)
	}
	fails(t, s, "")
	s.Param("none")
	fails(t, s, `parameter "none" is used but not declared by Params`)
	s = scope(Param{Name: "w", Shape: []int{2}, Words: "a photo"})
	if s.TrainedValue("w").Name() != "param/w" {
		t.Error("an offset has no value")
	}
	s.Param("w")
	fails(t, s, `parameter "w" is an offset from the words "a photo"`)
}

// A host function is asked for once under its name, which tells the values of its arguments apart. A trace has its
// value at the parameters of the step alone.
func TestHostFunctions(t *testing.T) {
	s := scope(Param{Name: "a", Shape: []int{2}})
	a := s.Param("a")
	f := HostFunc{Trace: func(x *tensor.Tensor) *tensor.Tensor { return x }}
	n := s.Host("f", f, []int{3, 2}, a)
	if again := s.Host("f", f, []int{3, 2}, a); n != again || n.Name() != "host/f" || n.Shape().String() != "[3,2]" {
		t.Errorf("%v and %v", n, again)
	}
	r := s.Received()
	r.Host("f", f, []int{1}, r.Param("a"))
	w := s.With(Override{Name: "w"})
	w.Host("f", f, []int{1}, a)
	var got []string
	for _, h := range s.Built().Hosts {
		got = append(got, fmt.Sprint(h.Name, h.Args, h.Func.Trace != nil))
	}
	want := []string{"f[param/a] true", "received/f[received/a] false", "with/f w[param/a] false"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	fails(t, s, "")
	s.Host("g", HostFunc{}, []int{1}, a.MulScalar(2))
	fails(t, s, "host function g: argument")
	s = scope()
	s.Host("g", HostFunc{}, []int{1}, s.graph.Input("x", graph.Float, graph.Shape{}).Exp())
	fails(t, s, "host function g: argument")
}

// Inputs of a batch have the sizes of the client.
func TestInputs(t *testing.T) {
	s := scope()
	for n, want := range map[graph.Node]string{s.Image(): "image[B,4]", s.Patches(): "patches[B,3,4]",
		s.Pixels(): "pixels[B,3,7,7]", s.Label(): "label[B]"} {
		if got := n.Name() + n.Shape().String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if one := s.Scalar("x"); one.Rank() != 0 {
		t.Errorf("a scalar is %v", one.Shape())
	}
	fails(t, s, "")
}

// Features of texts are unit rows of every class, of one where there is no class, and of each image where it has a
// prompt of its own. A tower whose blocks cannot be reached refuses what needs them.
func TestTextFeatures(t *testing.T) {
	s := scope()
	in := func(name string, sizes ...int) graph.Node {
		return s.graph.Input(name, graph.Float, graph.Static(sizes...))
	}
	ctx, each := in("ctx", 2, 8), in("each", 5, 2, 8)
	for p, want := range map[*Prompt]string{{Ctx: ctx}: "[5,4]", {Ctx: ctx, NoClass: true}: "[1,4]",
		{Ctx: each, PerClass: true}: "[5,4]", {}: "[5,4]"} {
		if got := s.TextFeatures(*p).Shape().String(); got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
	}
	if n := s.TextFeatures(Prompt{Ctx: each}); n.Rank() != 3 || n.Shape()[0].Static() || n.Dim(1) != 5 ||
		n.Dim(2) != 4 {
		t.Errorf("a prompt for each image: %v", n.Shape())
	}
	if s.Text(ctx) != s.TextFeatures(Prompt{Ctx: ctx, Position: "end"}) ||
		s.Text(ctx) != s.TextFeatures(Prompt{Ctx: ctx, Template: "a {}"}) ||
		s.TextFeatures(Prompt{Ctx: ctx, Deep: []graph.Node{ctx}}) !=
			s.TextFeatures(Prompt{Ctx: ctx, Deep: []graph.Node{ctx, {}, {}}}) ||
		s.Text(ctx) == s.TextFeatures(Prompt{Ctx: ctx, Position: "front"}) {
		t.Error("equal prompts are told apart, or different ones are not")
	}
	if s.Text(ctx) == s.TextFeatures(Prompt{Ctx: ctx, Deep: []graph.Node{{}, ctx, {}}}) {
		t.Error("deep prompts are dropped")
	}
	fails(t, s, "")
	for _, c := range []struct {
		want  string
		sizes []int
		with  func(p *Prompt)
	}{
		{"", []int{2, 8}, func(*Prompt) {}}, {"", []int{5, 2, 8}, func(p *Prompt) { p.PerClass = true }},
		{"deep prompts", []int{2, 8}, func(p *Prompt) { p.Deep = []graph.Node{p.Ctx} }},
		{"deep prompts", []int{2, 8}, func(p *Prompt) { p.NoPositions = true }},
		{"prompts without a class", []int{2, 8}, func(p *Prompt) { p.NoClass = true }},
		{"low-rank changes or adapters", []int{2, 8}, func(p *Prompt) {
			p.Changes = BlockChanges{LowRank: []clip.LowRank{{A: p.Ctx, B: p.Ctx}}}
		}},
		{"a prompt for each image", []int{5, 2, 8}, func(*Prompt) {}},
	} {
		exported := towers
		exported.TextLayers = 0
		s := NewScope(exported, nil)
		p := Prompt{Ctx: s.graph.Input("ctx", graph.Float, graph.Static(c.sizes...))}
		c.with(&p)
		s.TextFeatures(p)
		if c.want != "" {
			c.want = "the text tower of backbone toy, an exported model, does not support " + c.want
		}
		fails(t, s, c.want)
	}
}

// Another value takes the place of features of the image tower, not of embeddings of patches. A tower without blocks
// refuses what changes them.
func TestVision(t *testing.T) {
	s := scope()
	plain, noise := VisionPrompts{Pixels: s.graph.Scalar(1)}, s.graph.Input("noise", graph.Float, graph.Rows("B", 4))
	noisy := s.With(Override{Vision: func(s *Scope, p VisionPrompts) graph.Node { return s.Vision(p).Add(noise) }})
	if n := noisy.Vision(VisionPrompts{Embeddings: true}); noisy.Used() || n.Rank() != 3 || n.Dim(1) != 3 ||
		n.Dim(2) != 6 {
		t.Errorf("embeddings are %v", n.Shape())
	}
	if noisy.Vision(plain) != s.Vision(plain).Add(noise) || !noisy.Used() || s.Used() {
		t.Error("other features")
	}
	fails(t, s, "")
	low := VisionPrompts{Changes: BlockChanges{LowRank: []clip.LowRank{{A: noise, B: noise}}}}
	s.Vision(low)
	fails(t, s, "")
	resnet := towers
	resnet.VisionLayers = 0
	s = NewScope(resnet, nil)
	s.Vision(VisionPrompts{})
	fails(t, s, "")
	s.Vision(low)
	fails(t, s, "the image tower of backbone toy, a ResNet or an exported model, does not support low-rank")
}

// The last override of a method counts, whatever overrides of other methods came after it. It is used where it is
// called, those around it where it calls them.
func TestLastOverrideCounts(t *testing.T) {
	s := scope()
	x, a := s.Image(), s.HandText()
	outer := s.With(Override{Cosine: func(_ *Scope, x, t graph.Node) graph.Node { return x.MatMulT(t) }})
	inner := outer.With(Override{Cosine: func(s *Scope, x, t graph.Node) graph.Node { return s.Cosine(x, t).Neg() }})
	last := inner.With(Override{Vision: (*Scope).Vision})
	if s.Cosine(x, a) != x.MatMulT(a).MulScalar(2) || last.Cosine(x, a) != x.MatMulT(a).Neg() {
		t.Error("other scores")
	}
	if !outer.Used() || !inner.Used() || last.Used() || s.Used() {
		t.Errorf("used are %v, %v, %v and %v", outer.Used(), inner.Used(), last.Used(), s.Used())
	}
}

// Terms of one name are one term. Each part of a loss has a name, as often as it is added, and each term is added.
func TestTermsOfALoss(t *testing.T) {
	for want, loss := range map[string]func(s *Scope, x, y, z graph.Node) graph.Node{
		"a=x b=y": func(s *Scope, x, y, _ graph.Node) graph.Node { return s.Term("a", x).Add(s.Term("b", y)) },
		"a=x+x":   func(s *Scope, x, _, _ graph.Node) graph.Node { return s.Term("a", x).Add(s.Term("a", x)) },
		"a=s":     func(s *Scope, x, y, _ graph.Node) graph.Node { return s.Term("a", x.Add(y)) },
		"a=x+z b=y": func(s *Scope, x, y, z graph.Node) graph.Node {
			return s.Term("a", x).Add(s.Term("b", y)).Add(s.Term("a", z))
		},
		"parts of the loss have no name": func(s *Scope, x, y, _ graph.Node) graph.Node {
			return s.Term("a", x).Add(y)
		},
		"parts of the loss have no name:": func(s *Scope, x, _, _ graph.Node) graph.Node {
			x = s.Term("a", x)
			return x.Add(x)
		},
		"parts of the loss": func(s *Scope, x, y, _ graph.Node) graph.Node { return s.Term("a", x).Sub(y) },
		`the term "b" is named but not added to the loss`: func(s *Scope, x, y, _ graph.Node) graph.Node {
			s.Term("b", y)
			return s.Term("a", x)
		},
	} {
		s := scope()
		one := func(name string) graph.Node { return s.graph.Input(name, graph.Float, graph.Shape{}) }
		x, y, z := one("x"), one("y"), one("z")
		n := loss(s, x, y, z)
		terms, err := s.Built().Terms(n)
		sum := func(n graph.Node) string {
			for text, node := range map[string]graph.Node{"x": x, "y": y, "x+z": x.Add(z), "x+x": x.Add(x),
				"s": x.Add(y)} {
				if node == n {
					return text
				}
			}
			return n.String()
		}
		var got []string
		for _, x := range terms {
			got = append(got, x.Name+"="+sum(x.Node))
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if !strings.HasPrefix(text, want) || err == nil && text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	s := scope()
	s.Term("A", s.graph.Scalar(1))
	fails(t, s, `a term of the loss is called "A"`)
}

// The loss of labels is a softmax's, a sigmoid's with the backbone's bias, or the one that stands in its place.
func TestCrossEntropy(t *testing.T) {
	sigmoid := towers
	sigmoid.Sigmoid, sigmoid.Bias = true, -3
	for _, task := range []ClientSpec{towers, sigmoid} {
		s := NewScope(task, nil)
		logits := s.Cosine(s.Image(), s.HandText())
		want := graph.CrossEntropy(logits, s.Label())
		if task.Sigmoid {
			want = graph.SigmoidCrossEntropy(logits.AddScalar(-3), s.Label())
		}
		if got := s.CrossEntropy(logits); got != want || s.LabelLoss(logits) != want {
			t.Error("another loss")
		}
		if got := s.built.terms[0].Name; got != "cross entropy" {
			t.Errorf("it is called %s", got)
		}
		fit := s.With(Override{LabelLoss: func(_ *Scope, n graph.Node) graph.Node { return n.Mean() }})
		if fit.Used() || fit.CrossEntropy(logits, "local", "a") != logits.Mean() || !fit.Used() ||
			s.built.terms[1].Name != "cross entropy local a" {
			t.Errorf("the loss is not replaced: %v", s.built.terms)
		}
	}
	for name, want := range map[string]bool{"cross entropy": true, "cross entropy local": true, "cross entropyx": false,
		"entropy": false} {
		if IsCrossEntropy(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// needs is a method whose loss accepts images of one size only.
type needs struct {
	Base
	dim    int
	unsaid bool
}

func (needs) Params(ClientSpec) []Param { return nil }
func (m needs) Logits(s *Scope) graph.Node {
	if s.Task().Dim != m.dim {
		return s.Graph().Fail("another size")
	}
	return s.Cosine(s.Image(), s.HandText())
}

func (m needs) Loss(s *Scope, logits graph.Node) graph.Node {
	if m.unsaid {
		return logits.Mean()
	}
	return s.CrossEntropy(logits).Add(s.Term("more", s.Graph().Scalar(1)))
}

func TestTermNames(t *testing.T) {
	want := []string{"cross entropy", "more"}
	for m, names := range map[needs][]string{{dim: 8}: want, {dim: 512}: want, {dim: 9}: nil,
		{dim: 8, unsaid: true}: nil} {
		if got := TermNames(m); !slices.Equal(got, names) {
			t.Errorf("%+v: %v, want %v", m, got, names)
		}
	}
}

// The trace has the drawn numbers, and counts those that it has not, also of nobody's trace.
func TestDrawsAreRecorded(t *testing.T) {
	var got []string
	d := NewDraws(func(name string, v *tensor.Tensor) { got = append(got, name) })
	same := rand.New(rand.NewPCG(1, 2))
	r := d.Counted(rand.New(rand.NewPCG(1, 2)))
	if x := d.Uniform(r, "u", 2); x[0] != same.Float64() || x[1] != same.Float64() || d.Count() != 2 ||
		d.Unrecorded() != 0 {
		t.Errorf("%v: %d drawn, %d not recorded", x, d.Count(), d.Unrecorded())
	}
	r.Uint64()
	d.WithoutRecording(func() { r.Uint64() })
	if d.Count() != 4 || d.Unrecorded() != 1 || !slices.Equal(got, []string{"u"}) {
		t.Errorf("%d drawn, %d not recorded, %v", d.Count(), d.Unrecorded(), got)
	}
	d.RecordTo(nil)
	d.Record("nobody", nil)
	var none *Draws
	r = rand.New(rand.NewPCG(1, 2))
	again := rand.New(rand.NewPCG(1, 2))
	if none.Counted(r) != r || none.Normal(r, "n", 1)[0] != again.NormFloat64() || none.Count() != 0 ||
		none.Unrecorded() != 0 {
		t.Error("no trace draws others")
	}
	none.Record("nobody", nil)
}

// What the server knows of its clients, with limits at both ends.
func TestClients(t *testing.T) {
	g := &Global{Infos: []ClientInfo{{Backbone: "a"}, {}}, PerClient: map[int]tensor.Map{}}
	if g.Info(0).Backbone != "a" || g.Info(-1) != (ClientInfo{}) || g.Info(2) != (ClientInfo{}) || !g.HasJoined(0) ||
		g.HasJoined(1) || g.AllJoined() || !(&Global{}).HasJoined(1) || !(&Global{}).AllJoined() {
		t.Error("who has joined")
	}
	if err := (&Global{}).Over(); err != nil {
		t.Errorf("a run that nothing interrupts is over: %v", err)
	}
	if g.Infos[1].Backbone = "b"; !g.AllJoined() {
		t.Error("a client has not joined")
	}
	g.ExtrasFor(1)["x"] = tensor.New(1)
	if len(g.ExtrasFor(1)) != 1 || len(g.ExtrasFor(0)) != 0 {
		t.Errorf("%v", g.PerClient)
	}
	if !(Sampling{Clients: 4, Size: 3.5}).Draws() || (Sampling{Clients: 4, Size: 4}).Draws() {
		t.Error("a round of all clients is drawn")
	}
	if len(Mean([]Upload{upload(0, 0, 1)}, shared)) != 0 {
		t.Error("the mean of no examples holds something")
	}
	own := Param{Name: "p", Shape: []int{2}, Std: 1}
	if a, b := own.Initial(3, 0), own.Initial(3, 1); a.Data[0] == b.Data[0] || math.IsNaN(float64(a.Data[0])) {
		t.Error("two clients draw alike")
	}
	if a, b := own.Alike().Initial(3, 0), own.Initial(3, -1); a.Data[0] != b.Data[0] {
		t.Error("an equal start is not that of the server")
	}
}
