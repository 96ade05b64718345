package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// published lists the names and shapes of the weights of OpenAI's nine CLIPs. tools/golden/resnet.py derives them from
// PyTorch modules of the published sizes, whose numbers of parameters it compares with OpenCLIP's list.
func published(t testing.TB) map[string]map[string][]int {
	t.Helper()
	out := map[string]map[string][]int{}
	goldentest.ReadJSON(t, "testdata/shapes.json.gz", &out)
	return out
}

// shapesOnly is a checkpoint whose tensors, except the logit scale, cannot be read.
func shapesOnly(format Format, shapes map[string][]int, config map[string]any) *Checkpoint {
	c := &Checkpoint{format: format, path: "(shapes)", config: config, handles: map[string]*Handle{}}
	for name, s := range shapes {
		h := &Handle{Name: name, DType: "F16", Shape: s, load: func() (*tensor.Tensor, error) {
			return nil, errors.New("nothing but a shape")
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
	vit := func(width, layers, patch, image int) clip.VisionArch {
		return clip.VisionArch{Width: width, Layers: layers, Heads: width / 64, Patch: patch, Image: image,
			Activation: QuickGELU, Eps: 1e-5}
	}
	resnet := func(width, image int, stages ...int) clip.VisionArch {
		return clip.VisionArch{Width: width, Heads: width / 64, Patch: 32, Image: image, Stages: stages, Eps: 1e-5}
	}
	want := map[string]struct {
		embed, text int
		vision      clip.VisionArch
	}{
		"RN50":         {1024, 512, resnet(2048, 224, 3, 4, 6, 3)},
		"RN101":        {512, 512, resnet(2048, 224, 3, 4, 23, 3)},
		"RN50x4":       {640, 640, resnet(2560, 288, 4, 6, 10, 6)},
		"RN50x16":      {768, 768, resnet(3072, 384, 6, 8, 18, 8)},
		"RN50x64":      {1024, 1024, resnet(4096, 448, 3, 15, 36, 10)},
		"ViT-B/32":     {512, 512, vit(768, 12, 32, 224)},
		"ViT-B/16":     {512, 512, vit(768, 12, 16, 224)},
		"ViT-L/14":     {768, 768, vit(1024, 24, 14, 224)},
		"ViT-L/14@336": {768, 768, vit(1024, 24, 14, 336)},
	}
	all := published(t)
	if len(all) != len(want) {
		t.Errorf("%d architectures", len(all))
	}
	for name, shapes := range all {
		known := want[name]
		w := Arch{Vision: known.vision, Vocab: 49408, LogitScale: 100, EndToken: AnyToken, PadToken: AnyToken,
			Text: clip.TextArch{Width: known.text, Layers: 12, Heads: known.text / 64, Context: 77,
				EmbedDim: known.embed, Activation: QuickGELU, Eps: 1e-5}}
		w.Vision.EmbedDim = known.embed
		shapes["input_resolution"], shapes["vocab_size"] = nil, nil // scalars of the archive
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
	for want, v := range map[string]clip.VisionArch{
		"ResNet, stages of [1 1 4 1] blocks, width 512": {Stages: []int{1, 1, 4, 1}, Patch: 32, Width: 512},
		"ViT, 4 layers, width 96, patch size 8":         {Patch: 8, Width: 96, Layers: 4},
	} {
		if got := (Arch{Vision: v}).Name(); got != want {
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
			a.Vision.Heads != 32 || a.Vision.EmbedDim != 1024 {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
	_, err := Detect(shapesOnly(HuggingFace, named("visual.", true), config(t, strings.Replace(both, "224", "225", 1))))
	goldentest.WantErrorOf(t, "another image size", err, "image_size is 225, but the weights say 224")
	projection := named("visual.", true)
	projection["text_projection"] = []int{512, 1024}
	delete(projection, "text_projection.weight")
	if a, err := Detect(shapesOnly(HuggingFace, projection, nil)); err != nil || a.Vision.EmbedDim != 1024 {
		t.Errorf("text_projection as a parameter: %+v, %v", a, err)
	}
	for what, c := range map[string]struct {
		change func(map[string][]int)
		want   string
	}{
		"a projection behind the pooling": {func(m map[string][]int) {
			m["visual_projection.weight"] = []int{1024, 1024}
		}, `"visual_projection.weight"`},
		"an odd stem": {func(m map[string][]int) {
			m["visual.layer1.0.conv1.weight"] = []int{63, 63, 1, 1}
		}, "even number"},
		"no stage": {func(m map[string][]int) { deleteUnder(m, "visual.layer4.") },
			"stage visual.layer4 of the ResNet is missing"},
		"no pooling": {func(m map[string][]int) { deleteUnder(m, "visual.attnpool.") },
			`"visual.attnpool.positional_embedding" is missing`},
		"no text": {func(m map[string][]int) { deleteUnder(m, "text_model.") }, "no text tower"},
	} {
		m := named("visual.", true)
		c.change(m)
		_, err := Detect(shapesOnly(HuggingFace, m, nil))
		goldentest.WantErrorOf(t, what, err, c.want)
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
	w, b := convolution{weight: kernel, gain: one("gain", 3, 1), bias: one("bias", 1, 0), mean: one("mean", 2, 0),
		variance: one("var", 4-1e-5, 0.25-1e-5)}.folded()
	weight := loaded(t, w)
	bias, err := b.Load()
	goldentest.NoError(t, err)
	if got := fmt.Sprint(weight.Data, bias.Data); got != "[1.5 3 -8 16] [-2 0]" {
		t.Errorf("folded: %s", got)
	}
	if again, _ := w.Load(); again.Data[0] != weight.Data[0] {
		t.Errorf("loading twice folds twice: %g", again.Data[0])
	}
	// A bias (10, 20) is added to the second of two positions.
	f := &finder{ckpt: fromMap(t, StateDict, tensor.Map{"bias": tensor.Of([]float32{10, 20}, 2)}, nil, Options{}),
		used: map[string]bool{}}
	if got := loaded(t, f.biased(one("positions", 1, 2, 3, 4), "bias", 2, 1)).Data; !slices.Equal(got, []float32{1, 2,
		13, 24}) {
		t.Errorf("with a bias: %v", got)
	}
	bad := one("bad", float32(math.NaN()))
	_, err = finite(bad)
	goldentest.WantError(t, err, `tensor "bad" holds NaN: the checkpoint is damaged`)
	_, err = bad.Number()
	goldentest.WantError(t, err, "bad is float32[1] [NaN], want one number")
}
