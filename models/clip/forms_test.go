package clip_test

import (
	"fmt"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// separated renames weights as in Hugging Face checkpoints: separate queries, keys and values, transposed projections.
func separated(m clip.ConstantWeights) clip.ConstantWeights {
	out := clip.ConstantWeights{}
	for name, t := range m {
		base, isWeight := strings.CutSuffix(name, "attn.in_proj_weight")
		if !isWeight {
			base, _ = strings.CutSuffix(name, "attn.in_proj_bias")
		}
		switch {
		case base != name:
			kind := map[bool]string{true: "weight", false: "bias"}[isWeight]
			n, shape := t.Len()/3, append([]int{t.Shape[0] / 3}, t.Shape[1:]...)
			for i, p := range []string{"q_proj.", "k_proj.", "v_proj."} {
				out[base+"attn."+p+kind] = tensor.Of(t.Data[i*n:(i+1)*n], shape...)
			}
		case name == "text_projection":
			out["text_projection.weight"] = transposed(t)
		case name == "visual.proj":
			out["visual_projection.weight"] = transposed(t)
		default:
			out[name] = t
		}
	}
	return out
}

func transposed(t *tensor.Tensor) *tensor.Tensor {
	r, c := t.Shape[0], t.Shape[1]
	out := tensor.New(c, r)
	for i := range r {
		for j := range c {
			out.Data[j*r+i] = t.Data[i*c+j]
		}
	}
	return out
}

func TestSeparateProjectionsGiveTheSame(t *testing.T) {
	vision := clip.VisionArch{Width: 64, Layers: 2, Heads: 2, Patch: 16, Image: 32, EmbedDim: 40}
	features := func(text, image clip.Weights) tensor.Map {
		g := graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(4, tiny.Width))
		pixels := g.Input("pixels", graph.Float, graph.Static(2, 3, 32, 32))
		f := clip.Text{TextArch: tiny}.Prompts(g, text, classes(t, 20, tiny.Width), []clip.Prompt{{Ctx: ctx}})[0]
		joint, patches := clip.Vision{VisionArch: vision}.Features(g, image, pixels)
		in := tensor.Map{"ctx": formula("ctx", []int{4, tiny.Width}), "pixels": formula("pixels", []int{2, 3, 32, 32})}
		return evaluate(t, "", in, graph.Output{Name: "f", Node: f}, graph.Output{Name: "j", Node: joint},
			graph.Output{Name: "p", Node: patches})
	}
	tw, vw := formulaWeights(tiny.Shapes()), formulaWeights(vision.Shapes())
	want, got := features(tw, vw), features(separated(tw), separated(vw))
	for _, name := range want.Names() {
		near(t, name, got[name].Data, want[name].Data, 1e-5)
	}
}

// Weights may be inputs of the graph, as in the training of a tower. A tower without a projection has the features of
// one that projects by the unit matrix.
func TestWeightsAsInputs(t *testing.T) {
	w := formulaWeights(tiny.Shapes())
	build := func(arch clip.TextArch, w clip.Weights) *onnx.ModelProto {
		g := graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(4, tiny.Width))
		f := clip.Text{TextArch: arch}.Prompts(g, w, classes(t, 5, tiny.Width), []clip.Prompt{{Ctx: ctx}})[0]
		return orttest.Model(t, graph.Output{Name: "f", Node: f})
	}
	ctx := formula("ctx", []int{4, tiny.Width})
	features := func(arch clip.TextArch, w clip.Weights, in tensor.Map) []float32 {
		in["ctx"] = ctx
		return orttest.Run(t, build(arch, w), "", in)["f"].Data
	}
	want := features(tiny, w, tensor.Map{})
	near(t, "weights as inputs", features(tiny, clip.InputWeights(w), tensor.Map(w).Clone()), want, 1e-5)
	arch := tiny
	arch.EmbedDim, arch.NoProjection = tiny.Width, true
	w = formulaWeights(arch.Shapes())
	want = features(arch, w, tensor.Map{})
	arch.NoProjection = false
	unit := tensor.New(tiny.Width, tiny.Width)
	for i := range tiny.Width {
		unit.Data[i*(tiny.Width+1)] = 1
	}
	w["text_projection"] = unit
	near(t, "a projection that changes nothing", features(arch, w, tensor.Map{}), want, 1e-5)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	w := formulaWeights(tiny.Shapes())
	text := clip.Text{TextArch: tiny}
	long := func(n int) [][]int { return [][]int{append(make([]int, n), stop, eot)} }
	for want, build := range map[string]func(*graph.Graph) error{
		`class "pneumonoultra" (62 tokens with the full stop and the end token) after a prompt of 16 tokens needs ` +
			`79 positions, the text tower has 77`: func(g *graph.Graph) error {
			s, err := clip.NewSuffixes([]string{"pneumonoultra"}, long(60), clip.SpecialTokens{SOS: sos}, 64,
				embedding(64))
			if err != nil {
				return err
			}
			text.Prompts(g, w, s, []clip.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(16, 64))}})
			return g.Err()
		},
		"prompt [4,32], must be [tokens,64]": func(g *graph.Graph) error {
			text.Prompts(g, w, classes(t, 2, 64), []clip.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(4,
				32))}})
			return g.Err()
		},
		"class embeddings of width 32": func(g *graph.Graph) error {
			text.Prompts(g, w, classes(t, 2, 32), []clip.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(4,
				64))}})
			return g.Err()
		},
		"prompts [3,4,64] for each class, there are 2 classes": func(g *graph.Graph) error {
			text.Prompts(g, w, classes(t, 2, 64), []clip.Prompt{{PerClass: true, Ctx: g.Input("ctx", graph.Float,
				graph.Static(3, 4, 64))}})
			return g.Err()
		},
		"prompt [4,64] for each class must be [classes,tokens,64], without deep prompts": func(g *graph.Graph) error {
			text.Prompts(g, w, classes(t, 2, 64), []clip.Prompt{{PerClass: true, Ctx: g.Input("ctx", graph.Float,
				graph.Static(4, 64))}})
			return g.Err()
		},
		`class position "behind"`: func(g *graph.Graph) error {
			text.Prompts(g, w, classes(t, 2, 64), []clip.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(4, 64)),
				Class: "behind"}})
			return g.Err()
		},
		"weight positional_embedding is missing": func(g *graph.Graph) error {
			text.Prompts(g, clip.ConstantWeights{}, classes(t, 2, 64), []clip.Prompt{{Ctx: g.Input("ctx", graph.Float,
				graph.Static(4, 64))}})
			return g.Err()
		},
		`class "a" has tokens [49407], needs a name`: func(*graph.Graph) error {
			_, err := clip.NewSuffixes([]string{"a"}, [][]int{{eot}}, clip.SpecialTokens{SOS: sos}, 64, embedding(64))
			return err
		},
		"embeddings [2,80,64], must be [classes, at most 77, 64]": func(g *graph.Graph) error {
			text.Plain(w, g.Input("emb", graph.Float, graph.Static(2, 80, 64)), g.Ints(1, 1))
			return g.Err()
		},
		"patches of 33 pixels do not tile an image of 32": func(g *graph.Graph) error {
			v := clip.Vision{VisionArch: clip.VisionArch{Width: 64, Layers: 1, Heads: 2, Patch: 33, Image: 32,
				EmbedDim: 8}}
			v.Features(g, w, g.Input("pixels", graph.Float, graph.Static(2, 3, 32, 32)))
			return g.Err()
		},
		"text tower: feed-forward layers of -1 units": func(g *graph.Graph) error {
			bad := text
			bad.MLP = -1
			bad.Prompts(g, w, classes(t, 2, 64), []clip.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(4, 64))}})
			return g.Err()
		},
		"pixels [2,3,30,30], must be [batch,3,32,32]": func(g *graph.Graph) error {
			v := clip.Vision{VisionArch: clip.VisionArch{Width: 64, Layers: 1, Heads: 2, Patch: 16, Image: 32,
				EmbedDim: 8}}
			v.Features(g, w, g.Input("pixels", graph.Float, graph.Static(2, 3, 30, 30)))
			return g.Err()
		},
	} {
		goldentest.WantError(t, build(graph.New()), want)
	}
}

// The counts were computed by hand for one class [name . EOT] and a prompt of one token, so 2 prefix rows and 3 suffix
// rows, with width 4 and EmbedDim 3. A multiply-add of a frozen product counts twice (forward, backward to the data)
// and one of attention three times, and each is two operations.
func TestStepFLOPs(t *testing.T) {
	s, err := clip.NewSuffixes([]string{"a"}, [][]int{{5, stop, eot}}, clip.SpecialTokens{SOS: sos}, 4, embedding(4))
	goldentest.NoError(t, err)
	arch := clip.TextArch{Width: 4, Layers: 2, Heads: 2, Context: 77, EmbedDim: 3}
	p := []clip.Prompt{{Ctx: graph.New().Input("ctx", graph.Float, graph.Static(1, 4))}}
	scores := 3 + 3*2 + 6                              // prefix on prefix, suffix on prefix, suffix on suffix
	first := 2*(3*16*2+9*16*5) + 3*(2*4*scores)        // qkv of the 2 prefix rows; the rest of the block on 5 rows
	last := 2*(2*16*5+16+9*16) + 3*(2*4*(2+3)) + 2*4*3 // keys and values of 5 rows; 1 query on all 5; projection
	if got, want := (clip.Text{TextArch: arch}).StepFLOPs(s, p), float64(2*(first+last)); got != want {
		t.Errorf("counted %v, by hand %v", got, want)
	}
	narrow := arch
	// not 16: two products of width 4 lose 9 units each, on the 5 rows of the first block and the read row of the last
	narrow.MLP = 7
	if got, want := (clip.Text{TextArch: narrow}).StepFLOPs(s, p),
		float64(2*(first+last)-2*2*(2*4*9)*(5+1)); got != want {
		t.Errorf("feed-forward of 7: counted %v, by hand %v", got, want)
	}
}

func ExampleNamedClasses() {
	fmt.Println(clip.CIFAR10.Names()[:2], clip.CIFAR10.Suffixes()[0])
	// Output: [airplane automobile] [16451 269 49407]
}
