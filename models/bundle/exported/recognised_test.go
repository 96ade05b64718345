package exported_test

import (
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Prompt tokens enter the blocks of an exported vision transformer: features and gradients of prompts after the patches
// of the first block and of the second one are PyTorch's (tools/golden/layouts.py, siglip.py). One tower is recognised
// as CLIP's; in the others, whose features are the mean token and an attention pooling, the blocks are found.
func TestPromptTokensOfAnExport(t *testing.T) {
	mayRun(t)
	for _, c := range []struct {
		dir, golden string
		want        clip.VisionArch
	}{
		{layouts + "/vit", layouts + "/vit/prompted.safetensors",
			clip.VisionArch{Layers: 3, Heads: 3, Width: 12, MLP: 24, Patch: 8, Activation: "gelu"}},
		{layouts + "/mean", layouts + "/mean/prompted.safetensors", clip.VisionArch{Layers: 3, Width: 12}},
		{"testdata/siglip", "testdata/siglip.prompted.safetensors", clip.VisionArch{Layers: 2, Width: 12}},
	} {
		b, want := openBundle(t, c.dir), orttest.Golden(t, c.golden)
		v := b.Vision
		v.Image, v.EmbedDim, v.Eps = 0, 0, 0
		if !b.TakesPromptTokens() || !reflect.DeepEqual(v, c.want) {
			t.Fatalf("%s: %+v", c.dir, v)
		}
		g := graph.New()
		in := map[string]graph.Node{"pixels": g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"),
			graph.StaticDim(3), graph.StaticDim(b.Vision.Image), graph.StaticDim(b.Vision.Image)})}
		for _, name := range []string{"tokens", "deep", "d"} {
			in[name] = g.Input(name, graph.Float, graph.Static(want[name].Shape...))
		}
		image, _, err := b.Image(g, in["pixels"], clip.VisionPrompts{Tokens: in["tokens"], Normed: true,
			Deep: []graph.Node{in["deep"]}})
		goldentest.NoError(t, err)
		dx := orttest.Gradients(t, image.L2Normalize().Mul(in["d"]).Sum(), in["tokens"], in["deep"])
		model := orttest.Model(t, graph.Output{Name: "image", Node: image.L2Normalize()}, graph.Output{
			Name: "tokens_grad", Node: dx[0]}, graph.Output{Name: "deep_grad", Node: dx[1]})
		given := maps.Clone(want)
		maps.DeleteFunc(given, func(name string, _ *tensor.Tensor) bool { return !in[name].OK() })
		for name, got := range orttest.Run(t, model, b.WeightsDir(), given) {
			orttest.CheckClose(t, c.dir+" "+name, got, want[name])
		}
	}
}

// The blocks of vision transformers that are recognised as CLIP's are also found by findStream, and prompts in them
// give the same features as in the recognised form.
func TestPromptTokensInBothForms(t *testing.T) {
	mayRun(t)
	for dir, blocks := range map[string]int{layouts + "/vit": 3, layouts + "/transformersjs": 2,
		layouts + "/optimum": 2, "folder=" + layouts + "/quantised,variant=q4": 2, "testdata/hf-half": 2,
		"testdata/hf-sdpa-mask-dynamo-18": 2} {
		b := openBundle(t, dir)
		g := graph.New()
		pixels := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3), graph.StaticDim(16),
			graph.StaticDim(16)})
		var deep []graph.Node
		for range blocks - 1 {
			deep = append(deep, g.Const(filled(4, b.Vision.Width)))
		}
		var out []graph.Output
		add := func(form string) {
			for name, p := range map[string]clip.VisionPrompts{"shallow": {Tokens: g.Const(filled(2, b.Vision.Width))},
				"deep": {Tokens: g.Const(filled(3, b.Vision.Width)), Deep: deep, Normed: true}} {
				image, _, err := b.Image(g, pixels, p)
				if err != nil {
					t.Fatalf("%s, %s: %v", dir, form, err)
				}
				out = append(out, graph.Output{Name: name + form, Node: image})
			}
		}
		add("")
		if n, err := exported.StreamOnly(b, runs); err != nil || n != blocks {
			t.Errorf("%s: %d blocks, %v", dir, n, err)
			continue
		}
		add(" of blocks")
		model := orttest.Model(t, out...)
		got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"pixels": filled(3, 3, 16, 16)})
		for _, name := range []string{"shallow", "deep"} {
			orttest.CheckClose(t, dir+" "+name, got[name+" of blocks"], got[name])
		}
	}
}

// filled returns a tensor of numbers of both signs.
func filled(shape ...int) *tensor.Tensor {
	x := tensor.New(shape...)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(3 * i)))
	}
	return x
}

// A tower that only resembles CLIP's stays as exported, and inspect reports the cost. CLIP-ONNX's tower has no causal
// mask.
func TestFormIsSaid(t *testing.T) {
	mayRun(t)
	cut := copyLayout(t, "vit") // towers of which one value is dropped from 6 of each feature
	for _, file := range []string{"image.onnx", "text.onnx"} {
		features, _ := towerIn(t, cut, file)
		putTower(t, cut, file, features.Slice(1, 0, 5))
	}
	for dir, want := range map[string]string{
		cut:                     "plain (width 8, features of size 6)",
		layouts + "/clip-onnx":  "plain (it resembles CLIP's, but its features differ by",
		layouts + "/openai":     "CLIP's transformer of 2 blocks, recognised",
		layouts + "/quantised":  "CLIP's transformer of 2 blocks, recognised",
		layouts + "/mobileclip": "CLIP's transformer of 2 blocks, recognised"} {
		var r bundle.Report
		openBundle(t, specOf(dir)).Report(&r)
		i := slices.IndexFunc(r.Found, func(f bundle.Finding) bool { return f.What == "text form" })
		if i < 0 || !strings.HasPrefix(r.Found[i].Value, want) {
			t.Errorf("%s: %+v", dir, r.Found)
		}
		costs := strings.Contains(r.Found[i].Value, "costs about 6 times") // 32 tokens in place of 5 for each class
		if costs != strings.HasPrefix(want, "plain") {
			t.Errorf("%s: %s", dir, r.Found[i].Value)
		}
	}
}

// towerIn returns the features of a tower's file, and the values that prompts could replace.
func towerIn(t *testing.T, dir, file string) (features graph.Node, rows []graph.Node) {
	m, err := onnx.ReadFile(filepath.Join(dir, file))
	goldentest.NoError(t, err)
	f, err := graph.ReadModel(m)
	goldentest.NoError(t, err)
	return f.Outputs[0].Node, exported.Gathers(f)
}

// Texts are cut off after the longest one only if a run shows that what follows has no influence. The tower has a
// causal mask, and its features depend on the mean of all tokens.
func TestWhatFollowsAText(t *testing.T) {
	mayRun(t)
	dir := copyTower(t, "hf-half", `{}`)
	features, rows := towerIn(t, dir, "text.onnx")
	putTower(t, dir, "text.onnx", features.Add(rows[0].Mean(1).Slice(1, 0, 6)))
	b, g := openBundle(t, dir), graph.New()
	one := g.Input("one", graph.Float, graph.Static(1))
	alone := bundletest.Sentences(t, b, g, "a dog")
	both := bundletest.Sentences(t, b, g, "a dog", "a dog on the red car").Slice(0, 0, 1)
	model := orttest.Model(t, graph.Output{Name: "alone", Node: alone.Mul(one)},
		graph.Output{Name: "both", Node: both.Mul(one)})
	got, _ := orttest.RunFixed(t, model, b.Dir, tensor.Map{"one": tensor.Of([]float32{1}, 1)})
	orttest.CheckClose(t, "beside a longer text", got["both"], got["alone"])
	goldentest.Contains(t, strings.Join(b.Notes, "\n"), "the end token changes the features (features differ")
	filetest.Write(t, filepath.Join(dir, bundle.ManifestFile), `{"text": {"causal": true}}`)
	_, err := bundle.Open(dir)
	goldentest.WantError(t, err, `changes its features (features differ by`, `remove "causal": true from "text"`)
	running = false
	b = openBundle(t, "testdata/hf-half")
	goldentest.Contains(t, strings.Join(b.Notes, "\n"), "it could not be measured whether what follows the end token")
	recorded := filepath.Join(t.TempDir(), "recorded") // is measured where it is opened
	goldentest.NoError(t, exported.WriteRecorded(b, recorded, false))
	running = true
	if notes := strings.Join(openBundle(t, recorded).Notes, "\n"); strings.Contains(notes, "measured") {
		t.Errorf("a text tower that runs has the notes %s", notes)
	}
}

// An attention may be one operator of ONNX Runtime. If a block differs from CLIP's in one operator, the tower is not
// recognised. Each case replaces an operator of the last block, by its name, with one that has the same output.
func TestOtherBlocks(t *testing.T) {
	heads := &onnx.AttributeProto{Name: "num_heads", Type: onnx.AttributeProto_INT, I: 2}
	larger := &onnx.AttributeProto{Name: "epsilon", Type: onnx.AttributeProto_FLOAT, F: 1e-3}
	for _, c := range []struct {
		what       string
		node       *onnx.NodeProto
		recognised bool
	}{
		{"one operator", &onnx.NodeProto{Name: "node_view_9", Domain: graph.Microsoft, OpType: "MultiHeadAttention",
			Input: []string{"linear_6", "linear_7", "linear_8"}, Attribute: []*onnx.AttributeProto{heads}}, true},
		{"a difference", &onnx.NodeProto{Name: "node_add_304", OpType: "Sub", Input: []string{"add_275", "linear_11"}},
			false},
		{"values of another norm", &onnx.NodeProto{Name: "node_MatMul_142", OpType: "MatMul",
			Input: []string{"layer_norm_1", "val_147"}}, false},
		{"a norm without a bias", &onnx.NodeProto{Name: "node_layer_norm_3", OpType: "LayerNormalization",
			Input: []string{"add_275", "m.text_model.encoder.layers.0.layer_norm1.weight"}}, false},
		{"another epsilon", &onnx.NodeProto{Name: "node_layer_norm_3", OpType: "LayerNormalization",
			Input: []string{"add_275", "m.text_model.encoder.layers.0.layer_norm1.weight",
				"m.text_model.encoder.layers.0.self_attn.k_proj.bias"},
			Attribute: []*onnx.AttributeProto{larger}}, false},
	} {
		m, err := onnx.ReadFile("testdata/hf-sdpa-mask-dynamo-18/text.onnx")
		goldentest.NoError(t, err)
		i := slices.IndexFunc(m.Graph.Node, func(n *onnx.NodeProto) bool { return n.Name == c.node.Name })
		c.node.Output, m.Graph.Node[i] = m.Graph.Node[i].Output, c.node
		file, err := graph.ReadModel(m)
		if err != nil || (exported.MatchForTest(file) > 0) != c.recognised {
			t.Errorf("%s: recognised must be %t (%v)", c.what, c.recognised, err)
		}
	}
}

// Any graph may be matched: operators without inputs, of other ranks and types, in any order.
func FuzzRecognise(f *testing.F) {
	for _, name := range []string{"vit/image.onnx", "vit/text.onnx", "optimum/text_model.onnx",
		"optimum/vision_model.onnx", "quantised/onnx/text_model_q4.onnx"} {
		f.Add(name, []byte{})
		for seed := range 12 {
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
