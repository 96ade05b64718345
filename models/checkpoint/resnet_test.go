package checkpoint

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"promptfed/runtime/tensor"
)

// published lists the names and shapes of the weights of OpenAI's nine CLIPs. tools/golden/resnet.py derives them from
// PyTorch modules of the published sizes, whose numbers of parameters it compares with OpenCLIP's list.
func published(t testing.TB) map[string]map[string][]int {
	t.Helper()
	f, err := os.Open("testdata/shapes.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string][]int{}
	if err := json.NewDecoder(z).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// shapesOnly is a checkpoint whose tensors, except the logit scale, cannot be read.
func shapesOnly(format Format, shapes map[string][]int, config map[string]any) *Checkpoint {
	c := &Checkpoint{format: format, path: "(shapes)", config: config, handles: map[string]*Handle{}}
	for name, s := range shapes {
		h := &Handle{Name: name, DType: "F16", Shape: s, load: func() (*tensor.Tensor, error) {
			return nil,
				errors.New("nothing but a shape")
		}}
		switch {
		case strings.HasSuffix(name, "num_batches_tracked"):
			h.DType = "I64"
		case name == "logit_scale":
			h.load = func() (*tensor.Tensor, error) { return tensor.Scalar(4.6052), nil }
		}
		c.handles[name] = h
	}
	return c
}

// Sizes are those of tables 19 and 20 of Radford et al. 2021; heads of the attention pooling have width 64.
func TestDetectPublished(t *testing.T) {
	vit := func(width, layers int) Transformer {
		return Transformer{Width: width, Layers: layers, Heads: width / 64, MLP: 4 * width, Activation: QuickGELU,
			Epsilon: 1e-5}
	}
	pool := func(width int) Transformer { return Transformer{Width: width, Heads: width / 64, Epsilon: 1e-5} }
	want := map[string]Arch{
		"RN50": {ImageSize: 224, EmbedDim: 1024, Vision: pool(2048), Stages: []int{3, 4, 6, 3}, Text: vit(512,
			12)},
		"RN101": {ImageSize: 224, EmbedDim: 512, Vision: pool(2048), Stages: []int{3, 4, 23, 3}, Text: vit(512,
			12)},
		"RN50x4": {ImageSize: 288, EmbedDim: 640, Vision: pool(2560), Stages: []int{4, 6, 10, 6}, Text: vit(640,
			12)},
		"RN50x16": {ImageSize: 384, EmbedDim: 768, Vision: pool(3072), Stages: []int{6, 8, 18, 8}, Text: vit(768,
			12)},
		"RN50x64": {ImageSize: 448, EmbedDim: 1024, Vision: pool(4096), Stages: []int{3, 15, 36, 10},
			Text: vit(1024, 12)},
		"ViT-B/32":     {ImageSize: 224, EmbedDim: 512, Vision: vit(768, 12), Patch: 32, Text: vit(512, 12)},
		"ViT-B/16":     {ImageSize: 224, EmbedDim: 512, Vision: vit(768, 12), Patch: 16, Text: vit(512, 12)},
		"ViT-L/14":     {ImageSize: 224, EmbedDim: 768, Vision: vit(1024, 24), Patch: 14, Text: vit(768, 12)},
		"ViT-L/14@336": {ImageSize: 336, EmbedDim: 768, Vision: vit(1024, 24), Patch: 14, Text: vit(768, 12)},
	}
	all := published(t)
	if len(all) != len(want) {
		t.Errorf("%d architectures", len(all))
	}
	for name, shapes := range all {
		w := want[name]
		w.Kind, w.Context, w.Vocab, w.LogitScale = ViT, 77, 49408, 100
		w.EndToken, w.PadToken = AnyToken, AnyToken
		if w.Stages != nil {
			w.Kind, w.Patch = ResNet, 32
		}
		got, err := Detect(shapesOnly(OpenAI, shapes, nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(w, got, cmpopts.EquateApprox(1e-4, 0)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if plain, _, _ := strings.Cut(name, "@"); got.Name() != plain {
			t.Errorf("%s is called %s", name, got.Name())
		}
	}
}

// Sizes without a usual name are written out.
func TestOtherSizes(t *testing.T) {
	for want, a := range map[string]Arch{
		"ResNet, stages of [1 1 4 1] blocks, width 512": {Kind: ResNet, Stages: []int{1, 1, 4, 1}, Patch: 32,
			Vision: Transformer{Width: 512}},
		"ViT, 4 layers, width 96, patch size 8": {Kind: ViT, Patch: 8, Vision: Transformer{Width: 96, Layers: 4}},
	} {
		if got := a.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A ResNet in a Hugging Face folder has OpenAI's names after some prefix, and its text tower names of either kind.
func TestResNetNames(t *testing.T) {
	openai := published(t)["RN50"]
	text := map[string]string{"positional_embedding": "text_model.embeddings.position_embedding.weight",
		"token_embedding.weight": "text_model.embeddings.token_embedding.weight",
		"ln_final.weight":        "text_model.final_layer_norm.weight",
		"ln_final.bias":          "text_model.final_layer_norm.bias", "logit_scale": "logit_scale",
		"text_projection": "text_projection.weight"}
	layer := strings.NewReplacer("transformer.resblocks.", "text_model.encoder.layers.", "attn.", "self_attn.", "ln_",
		"layer_norm", "mlp.c_fc", "mlp.fc1", "mlp.c_proj", "mlp.fc2")
	named := func(prefix string, hf bool) map[string][]int {
		out := map[string][]int{}
		for name, shape := range openai {
			kind := name[strings.LastIndex(name, "_")+1:]
			switch {
			case strings.HasPrefix(name, "visual."):
				out[prefix+strings.TrimPrefix(name, "visual.")] = shape
			case !hf:
				out[name] = shape
			case strings.Contains(name, "in_proj_"):
				for _, part := range []string{"q", "k", "v"} {
					out[strings.Replace(layer.Replace(name), "in_proj_"+kind, part+"_proj."+kind,
						1)] = append([]int{shape[0] / 3}, shape[1:]...)
				}
			case text[name] != "":
				out[text[name]] = shape
				if name == "text_projection" {
					out[text[name]] = []int{shape[1], shape[0]}
				}
			default:
				out[layer.Replace(name)] = shape
			}
		}
		return out
	}
	const both = `{"model_type":"clip","projection_dim":1024,` +
		`"text_config":{"num_attention_heads":8,"hidden_act":"gelu"},` +
		`"vision_config":{"image_size":224,"layers":[3,4,6,3]}}`
	for _, c := range []struct {
		name   string
		shapes map[string][]int
		format Format
		config string
		act    string
	}{
		{"visual", named("visual.", true), HuggingFace, both, GELU},
		{"vision_model", named("vision_model.", true), HuggingFace, both, GELU},
		{"vision_model.visual, another model_type", named("vision_model.visual.", true), HuggingFace,
			strings.Replace(both, `"clip"`, `"clip_resnet"`, 1), GELU},
		{"OpenAI's names and Hugging Face's configuration", named("visual.", false), HuggingFace, both, GELU},
		{"OpenAI's names and a configuration of something else", named("visual.", false), HuggingFace,
			`{"vision_layers":[3,4,6,3]}`, QuickGELU},
		{"no configuration", named("vision_model.", true), StateDict, "", QuickGELU},
		{"OpenCLIP", named("visual.", false), OpenCLIP,
			`{"model_cfg":{"embed_dim":1024,"vision_cfg":{"image_size":224,"layers":[3,4,6,3],"width":64,` +
				`"patch_size":null},"text_cfg":{"context_length":77,"vocab_size":49408,"width":512,"heads":8,` +
				`"layers":12}}}`, GELU},
	} {
		a, err := Detect(shapesOnly(c.format, c.shapes, config(t, c.config)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if a.Name() != "RN50" || a.Text.Activation != c.act || a.Vision.Activation != "" || a.Text.Heads != 8 ||
			a.Vision.Heads != 32 || a.EmbedDim != 1024 {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
	projection := named("visual.", true)
	projection["text_projection"] = []int{512, 1024}
	delete(projection, "text_projection.weight")
	if a, err := Detect(shapesOnly(HuggingFace, projection, nil)); err != nil || a.EmbedDim != 1024 {
		t.Errorf("text_projection as a parameter: %+v, %v", a, err)
	}
	for what, c := range map[string]struct {
		change func(map[string][]int)
		want   string
	}{
		"a projection behind the pooling": {func(m map[string][]int) {
			m["visual_projection.weight"] = []int{1024,
				1024}
		}, `"visual_projection.weight"`},
		"an odd stem": {func(m map[string][]int) {
			m["visual.layer1.0.conv1.weight"] = []int{63, 63,
				1, 1}
		}, "even number"},
		"no stage": {func(m map[string][]int) { deleteUnder(m, "visual.layer4.") },
			"stage visual.layer4 of the ResNet is missing"},
		"no pooling": {func(m map[string][]int) { deleteUnder(m, "visual.attnpool.") },
			`"visual.attnpool.positional_embedding" is missing`},
		"no text": {func(m map[string][]int) { deleteUnder(m, "text_model.") },
			"no text tower"},
	} {
		m := named("visual.", true)
		c.change(m)
		if _, err := Detect(shapesOnly(HuggingFace, m, nil)); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", what, err, c.want)
		}
	}
}

func deleteUnder(m map[string][]int, prefix string) {
	for name := range m {
		if strings.HasPrefix(name, prefix) {
			delete(m, name)
		}
	}
}

// By hand: gain 3 and variance 4-1e-5 make a scale of 1.5; mean 2 and bias 1 make 1-2·1.5 = -2.
func TestFolded(t *testing.T) {
	one := func(name string, v ...float32) *Handle {
		return &Handle{Name: name, DType: "F32", Shape: []int{len(v)}, load: func() (*tensor.Tensor,
			error) {
			return tensor.Of(slices.Clone(v), len(v)), nil
		}}
	}
	kernel := one("w", 1, 2, -4, 8)
	kernel.Shape = []int{2, 2, 1, 1}
	c := Convolution{Name: "c", Weight: kernel, Gain: one("gain", 3, 1), Bias: one("bias", 1, 0), Mean: one("mean", 2,
		0), Variance: one("var", 4-1e-5, 0.25-1e-5)}
	w, b := c.Folded()
	weight, err := w.Load()
	if err != nil {
		t.Fatal(err)
	}
	bias, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(weight.Data, bias.Data); got != "[1.5 3 -8 16] [-2 0]" {
		t.Errorf("folded: %s", got)
	}
	if again, _ := w.Load(); again.Data[0] != weight.Data[0] {
		t.Errorf("loading twice folds twice: %g", again.Data[0])
	}
}
