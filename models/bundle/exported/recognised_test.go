package exported_test

import (
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
)

// Prompt tokens go into the blocks of an exported vision transformer: features and gradients of prompts behind the
// patches of the first block and of the second one are PyTorch's (tools/golden/layouts.py).
func TestPromptTokensOfAnExport(t *testing.T) {
	orttest.Need(t)
	running = true
	defer func() { running = false }()
	b, want := openBundle(t, layouts+"/vit"), orttest.Golden(t, layouts+"/vit/prompted.safetensors")
	if v := b.Vision; !b.TakesPromptTokens() || v.Layers != 3 || v.Heads != 3 || v.Width != 12 || v.MLP != 24 ||
		v.Patch != 8 || v.Activation != "gelu" {
		t.Fatalf("%+v", v)
	}
	g := graph.New()
	in := map[string]graph.Node{}
	for _, name := range []string{"pixels", "tokens", "deep", "d"} {
		in[name] = g.Input(name, graph.Float, graph.Static(want[name].Shape...))
	}
	image, _, err := b.Image(g, in["pixels"], clip.VisionPrompts{Tokens: in["tokens"], Normed: true,
		Deep: []graph.Node{in["deep"]}})
	if err != nil {
		t.Fatal(err)
	}
	dx, err := grad.Of(image.Unit().Mul(in["d"]).Sum(), in["tokens"], in["deep"])
	if err != nil {
		t.Fatal(err)
	}
	model, err := graph.Model(graph.Output{Name: "image", Node: image.Unit()}, graph.Output{Name: "tokens_grad",
		Node: dx[0]}, graph.Output{Name: "deep_grad", Node: dx[1]})
	if err != nil {
		t.Fatal(err)
	}
	feeds := map[string]bool{"pixels": true, "tokens": true, "deep": true, "d": true}
	given := orttest.Golden(t, layouts+"/vit/prompted.safetensors")
	for name := range given {
		if !feeds[name] {
			delete(given, name)
		}
	}
	for name, got := range orttest.Run(t, model, b.WeightsDir(), given) {
		orttest.Near(t, name, got, want[name])
	}
}

// A tower that only looks like CLIP's stays as it was exported, and inspect says what that costs. CLIP-ONNX's has lost
// its causal mask.
func TestFormIsSaid(t *testing.T) {
	orttest.Need(t)
	running = true
	defer func() { running = false }()
	for layout, want := range map[string]string{
		"clip-onnx":  "plain (it looks like CLIP's, but its features differ by",
		"openai":     "CLIP's transformer of 2 blocks, recognised",
		"quantised":  "CLIP's transformer of 2 blocks, recognised",
		"mobileclip": "CLIP's transformer of 2 blocks, recognised"} {
		var r bundle.Report
		openBundle(t, specOf(layouts+"/"+layout)).Report(&r)
		i := slices.IndexFunc(r.Found, func(f bundle.Finding) bool { return f.What == "text form" })
		if i < 0 || !strings.HasPrefix(r.Found[i].Value, want) {
			t.Errorf("%s: %+v", layout, r.Found)
		}
		if costs := strings.Contains(r.Found[i].Value, "costs about 6 times"); costs != (layout == "clip-onnx") {
			t.Errorf("%s: %s", layout, r.Found[i].Value) // 32 tokens in place of 5 for each class
		}
	}
}

// Any graph may be looked at: operators without inputs, of other ranks and types, in any order.
func FuzzRecognise(f *testing.F) {
	for _, name := range []string{"vit/image.onnx", "vit/text.onnx", "optimum/text_model.onnx", "optimum/vision_model.onnx",
		"quantised/onnx/text_model_q4.onnx"} {
		f.Add(name, []byte{})
		for seed := range 40 {
			f.Add(name, []byte{byte(seed), byte(7 * seed), byte(seed / 3), byte(31 * seed), 5, byte(seed), 1, 2})
		}
	}
	f.Fuzz(func(t *testing.T, name string, changes []byte) {
		m, err := onnx.ReadFile(layouts + "/" + name)
		if err != nil {
			t.Skip()
		}
		whole := len(changes) < 4
		for ; len(changes) >= 4; changes = changes[4:] {
			at, what, a, b := int(changes[0])<<2|int(changes[1]&3), changes[1]>>2, int(changes[2]), int(changes[3])
			n, o := m.Graph.Node[at%len(m.Graph.Node)], m.Graph.Node[(at+a)%len(m.Graph.Node)]
			w := m.Graph.Initializer[at%len(m.Graph.Initializer)]
			switch what % 6 {
			case 0:
				n.OpType, n.Domain = o.OpType, o.Domain
			case 1:
				n.Input = n.Input[:min(a%4, len(n.Input))]
			case 2:
				if len(n.Input) > 0 && len(o.Output) > 0 {
					n.Input[b%len(n.Input)] = o.Output[0]
				}
			case 3:
				n.Attribute = o.Attribute
			case 4:
				n.Input = append(n.Input, w.Name)
			case 5:
				if len(w.Dims) > 1 {
					w.Dims[0], w.Dims[1] = w.Dims[1], w.Dims[0]
				}
			}
		}
		file, err := graph.ReadModel(m)
		if err == nil && exported.MatchForTest(file) == 0 && whole {
			t.Errorf("%s is not recognised", name)
		}
	})
}
