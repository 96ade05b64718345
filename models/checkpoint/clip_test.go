package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
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

// small is the model of tools/golden/checkpoint.py; logit_scale is 4.6052, whose exponential is 100.0003.
func small(act string, layers, visionHeads, textHeads int) Arch {
	return Arch{Vocab: 20, EndToken: AnyToken, PadToken: AnyToken, LogitScale: math.Exp(4.6052),
		Vision: clip.VisionArch{Width: 12, Layers: layers, Heads: visionHeads, Patch: 4, Image: 8, EmbedDim: 6,
			Activation: act, Eps: 1e-5},
		Text: clip.TextArch{Width: 8, Layers: layers, Heads: textHeads, Context: 7, EmbedDim: 6, Activation: act,
			Eps: 1e-5}}
}

// ending returns a with the token at which its configuration reads texts.
func ending(a Arch, token int) Arch {
	a.EndToken = token
	return a
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		path     string
		opts     Options
		want     Arch
		warnings []string
	}{
		{"openai.pt", Options{VisionHeads: 3, TextHeads: 2}, small(QuickGELU, 2, 3, 2), nil},
		{"openai.pt", Options{}, small(QuickGELU, 2, 1, 1), nil},
		{"huggingface", Options{}, ending(small(QuickGELU, 2, 3, 2), 49407), nil},
		{"sharded", Options{}, ending(small(QuickGELU, 2, 3, 2), 49407), nil},
		{"openclip", Options{}, ending(small(GELU, 2, 3, 2), LargestToken), nil},
		{"openclip", Options{Activation: GELU, TextHeads: 2}, ending(small(GELU, 2, 3, 2), LargestToken), nil},
		{"training.pt", Options{VisionHeads: 3, TextHeads: 2}, small(GELU, 1, 3, 2),
			[]string{"guessed, because the weights do not determine it: activation gelu (--activation; "}},
		{"training.pt", Options{Activation: GELU, Epsilon: 1e-5}, small(GELU, 1, 1, 1),
			[]string{"determine it: 1 heads of the text tower (--text-heads); 1 heads of the image tower " +
				"(--vision-heads)"}},
	} {
		a, err := Detect(open(t, "testdata/"+c.path, c.opts))
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		// F16 and BF16 keep 11 and 8 bits of the logarithm.
		if d := cmp.Diff(c.want, a, cmpopts.IgnoreFields(Arch{}, "Warnings"), cmpopts.EquateApprox(0.02, 0)); d != "" {
			t.Errorf("%s: %s", c.path, d)
		}
		if len(a.Warnings) != len(c.warnings) {
			t.Errorf("%s: warnings %q", c.path, a.Warnings)
			continue
		}
		for i, w := range c.warnings {
			if !strings.Contains(a.Warnings[i], w) {
				t.Errorf("%s: warnings %q, want %q", c.path, a.Warnings, w)
			}
		}
	}
}

// An option that contradicts the configuration is refused.
func TestContradictions(t *testing.T) {
	for want, opts := range map[string]Options{
		"--activation quick_gelu contradicts open_clip_config.json, which means gelu":     {Activation: QuickGELU},
		"text tower: --text-heads 4 contradicts open_clip_config.json, which means 2":     {TextHeads: 4},
		"text tower: --epsilon 0.01 contradicts open_clip_config.json, which means 1e-05": {Epsilon: 0.01},
	} {
		_, err := Detect(open(t, "testdata/openclip", opts))
		goldentest.WantErrorOf(t, want, err, want)
	}
}

// The guess for Chinese-CLIP's names says that BERT's activation is another one than the image tower's.
func TestGuessedActivationsOfTwoKinds(t *testing.T) {
	arch := small("", 1, 3, 2)
	err := fromNothing(&Checkpoint{}, scheme{bert: true, huggingface: true}, &arch)
	if err != nil || arch.Text.Activation != GELU || arch.Vision.Activation != QuickGELU ||
		!strings.Contains(arch.Warnings[0], "gelu of the text tower, quick_gelu of the image tower (--activation") {
		t.Errorf("%+v, %v", arch, err)
	}
}

// list returns every tensor of w with fused projections of attention; projections to features are [width,embed].
func list(t *testing.T, w *Weights) tensor.Map {
	m := tensor.Map{}
	for _, h := range w.Fused() {
		x := loaded(t, h.Handle)
		if fmt.Sprint(x.Shape) != fmt.Sprint(h.Shape) {
			t.Errorf("%s: shape %v, handle says %v", h.Name, x.Shape, h.Shape)
		}
		if plain, ok := map[string]string{"text_projection.weight": "text_projection",
			"visual_projection.weight": "visual.proj"}[h.Name]; ok {
			y := tensor.New(x.Shape[1], x.Shape[0])
			for i := range x.Shape[0] {
				for j := range x.Shape[1] {
					y.Data[j*x.Shape[0]+i] = x.Data[i*x.Shape[1]+j]
				}
			}
			x, h.Name = y, plain
		}
		m[h.Name] = x
	}
	return m
}

// The Hugging Face and the OpenCLIP folder hold the same model: tools/golden/checkpoint.py renames, splits and
// transposes. The names and shapes are those that the towers need.
func TestNamingSchemesAgree(t *testing.T) {
	read := func(path string) (*Weights, tensor.Map) {
		w, err := CLIP(open(t, path, Options{}))
		goldentest.NoError(t, err)
		return w, list(t, w)
	}
	hw, hf := read("testdata/huggingface")
	ow, oc := read("testdata/openclip")
	if d := cmp.Diff(oc, hf); d != "" {
		t.Error(d)
	}
	need := ow.Arch.Text.Shapes()
	maps.Copy(need, ow.Arch.Vision.Shapes())
	need[TokenEmbedding] = []int{ow.Arch.Vocab, ow.Arch.Text.Width}
	have := map[string][]int{}
	for name, x := range oc {
		have[name] = x.Shape
	}
	if d := cmp.Diff(need, have); d != "" {
		t.Error(d)
	}
	const q, fused = "transformer.resblocks.1.attn.q_proj.weight", "transformer.resblocks.1.attn.in_proj_weight"
	find := func(list []Tensor, name string) *Handle {
		if i := slices.IndexFunc(list, func(h Tensor) bool { return h.Name == name }); i >= 0 {
			return list[i].Handle
		}
		return nil
	}
	if h := find(ow.Tensors, fused); h == nil || h.File == "" || h.Computed {
		t.Errorf("the stored fused projection is %+v", h)
	}
	if h := find(hw.Tensors, q); h == nil || h.File == "" || find(hw.Tensors, fused) != nil {
		t.Errorf("the separately stored queries are %+v", h)
	}
	if h := find(hw.Fused(), fused); h == nil || !h.Computed {
		t.Errorf("the concatenated projection is %+v", h)
	}
}

// Layer scale multiplies the rows of the linear layer before it, and their biases.
func TestLayerScale(t *testing.T) {
	m := renamed(t, "testdata/openclip", same)
	read := func(factor float32) tensor.Map {
		m["visual.transformer.resblocks.1.ls_2.gamma"] = tensor.Of(slices.Repeat([]float32{factor}, 12), 12)
		w, err := CLIP(fromMap(t, OpenCLIP, m, config(t, openclipConfigOf("", "")), Options{}))
		goldentest.NoError(t, err)
		return list(t, w)
	}
	want := read(1)
	for _, kind := range []string{"weight", "bias"} {
		x := want["visual.transformer.resblocks.1.mlp.c_proj."+kind]
		x.Axpy(1, x)
	}
	if d := cmp.Diff(want, read(2)); d != "" {
		t.Error(d)
	}
}

// renamed copies the tensors of a checkpoint into memory; change returns the new name, or "" to omit a tensor.
func renamed(t *testing.T, path string, change func(string) string) tensor.Map {
	t.Helper()
	c := open(t, path, Options{})
	m := tensor.Map{}
	for _, n := range c.Names() {
		h, _ := c.Tensor(n)
		x := loaded(t, h)
		if to := change(n); to != "" {
			m[to] = x
		}
	}
	return m
}

func same(name string) string { return name }

// custom returns OpenCLIP's name of a tensor in a model with custom text.
func custom(name string) string {
	if strings.HasPrefix(name, "visual.") || name == "logit_scale" {
		return name
	}
	return "text." + name
}

func config(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	m, err := parseJSON([]byte(text))
	goldentest.NoError(t, err)
	return m
}

func TestCustomTextNames(t *testing.T) {
	m := renamed(t, "testdata/openclip", custom)
	opts := Options{VisionHeads: 3, TextHeads: 2, Activation: GELU, Epsilon: 1e-5}
	a, err := Detect(fromMap(t, StateDict, m, nil, opts))
	if err != nil || len(a.Warnings) > 0 || a.Text.Layers != 2 {
		t.Errorf("%+v %v", a, err)
	}
}

// Weights do not determine their activation: exact GELU in place of quick GELU changes features by up to 1.6e-2. Only
// OpenAI's archives, which hold sizes as tensors (clip/model.py of OpenAI), have its quick GELU without a warning.
// Tensors that a training loop saved, or with OpenCLIP's custom text names, are OpenCLIP's, whose default is GELU.
func TestActivationOfWeights(t *testing.T) {
	for _, c := range []struct {
		what            string
		format          Format
		name            func(string) string
		sizes, training bool
		want            string
		warnings        int
	}{
		{"a state dict", StateDict, same, false, false, QuickGELU, 1},
		{"a script", OpenAI, same, false, false, QuickGELU, 1},
		{"OpenAI's archive", OpenAI, same, true, false, QuickGELU, 0},
		{"OpenAI's after training", StateDict, same, true, true, QuickGELU, 1},
		{"a training checkpoint", StateDict, same, false, true, GELU, 1},
		{"custom text", StateDict, custom, false, false, GELU, 1},
	} {
		m := renamed(t, "testdata/openclip", c.name)
		if c.sizes {
			m["input_resolution"], m["vocab_size"] = tensor.Scalar(8), tensor.Scalar(20)
		}
		ckpt := fromMap(t, c.format, m, nil, Options{VisionHeads: 3, TextHeads: 2})
		ckpt.training = c.training
		for _, h := range ckpt.handles {
			if !strings.Contains(h.Name, "ln_") && !strings.Contains(h.Name, "embedding") {
				h.DType = "F16" // as after convert_weights of OpenAI and of OpenCLIP
			}
		}
		a, err := Detect(ckpt)
		if err != nil || a.Text.Activation != c.want || a.Vision.Activation != c.want || len(a.Warnings) != c.warnings {
			t.Errorf("%s: %s and %s, warnings %q, %v; want %s", c.what, a.Text.Activation, a.Vision.Activation,
				a.Warnings, err, c.want)
		}
	}
}

// hfConfig and openclipConfigOf return configurations of the small model with additional fields, which replace existing
// ones.
func hfConfig(text, vision, top string) string {
	return `{"projection_dim":6,"text_config":{"hidden_size":8,"num_hidden_layers":2,"intermediate_size":32,` +
		`"vocab_size":20,"max_position_embeddings":7` + text + `},"vision_config":{"hidden_size":12,` +
		`"num_hidden_layers":2,"intermediate_size":48,"image_size":8,"patch_size":4` + vision + `}` + top + `}`
}

func openclipConfigOf(vision, text string) string {
	return `{"model_cfg":{"vision_cfg":{"head_width":4,"width":12,"layers":2,"patch_size":4,"image_size":8` + vision +
		`},"text_cfg":{"heads":2,"width":8,"layers":2,"vocab_size":20,"context_length":7` + text + `}}}`
}

func TestWrongArchitectures(t *testing.T) {
	without := func(part string) func(string) string {
		return func(n string) string {
			if strings.Contains(n, part) {
				return ""
			}
			return n
		}
	}
	hf, oc := "testdata/huggingface", "testdata/openclip"
	for _, c := range []struct {
		name   string
		format Format
		m      tensor.Map
		config string
		want   string
	}{
		{"BERT", HuggingFace, tensor.Map{"bert.embeddings.word_embeddings.weight": tensor.New(4, 2)}, "",
			`not a CLIP: its tensors are named like "bert.embeddings`},
		{"BERT by config", HuggingFace, tensor.Map{"x": tensor.New(1)}, `{"model_type":"bert"}`, `model_type "bert"`},
		{"SigLIP", HuggingFace, renamed(t, hf, same), `{"model_type":"siglip"}`, `model_type "siglip"`},
		{"no causal mask", OpenCLIP, renamed(t, oc, same), openclipConfigOf("", `,"no_causal_mask":3`),
			"no_causal_mask is 3"},
		{"text only", HuggingFace, renamed(t, hf, without("vision_model.")), "", "no image tower"},
		{"image only", StateDict, renamed(t, oc, without("token_embedding")), "", "no text tower"},
		{"timm", OpenCLIP, tensor.Map{"visual.trunk.patch_embed.proj.weight": tensor.New(1),
			"token_embedding.weight": tensor.New(1, 1)}, "",
			`"visual.trunk.patch_embed.proj.weight" belongs to a tower of another library that is not a plain vision`},
		{"a tensor missing", StateDict, renamed(t, oc, without("resblocks.1.mlp.c_proj.bias")), "",
			`"visual.transformer.resblocks.1.mlp.c_proj.bias" is missing|` +
				`"transformer.resblocks.1.mlp.c_proj.bias" is missing`},
		{"a block missing", StateDict, renamed(t, oc, without(".resblocks.0.")), "", "resblocks.0 is missing among"},
		{"activation", HuggingFace, renamed(t, hf, same),
			hfConfig(`,"num_attention_heads":2,"hidden_act":"relu"`, "", ""), `hidden_act "relu"`},
		{"width", HuggingFace, renamed(t, hf, same), hfConfig(`,"hidden_size":512`, "", ""),
			"text_config.hidden_size is 512, but the weights say 8"},
		{"default width", HuggingFace, renamed(t, hf, same), `{"vision_config":{}}`,
			"vision_config.hidden_size is missing, which means 768, but the weights say 12"},
		{"heads", HuggingFace, renamed(t, hf, same), hfConfig(`,"num_attention_heads":3`, "", ""),
			"does not split into 3 heads; correct config.json"},
		{"an unknown field", HuggingFace, renamed(t, hf, same), hfConfig("", `,"rope_theta":100`, ""),
			"config.json: vision_config.rope_theta = 100 is unknown and may change what is computed"},
		{"an unknown field at the top", HuggingFace, renamed(t, hf, same),
			hfConfig("", "", `,"quantization_config":{}`), "config.json: quantization_config = map[] is unknown"},
		{"pruned heads", HuggingFace, renamed(t, hf, same), hfConfig(`,"pruned_heads":{"0":[1]}`, "", ""),
			"text_config.pruned_heads = map[0:[1]] is not supported"},
		{"image size", OpenCLIP, renamed(t, oc, same), openclipConfigOf(`,"image_size":[224,224]`, ""),
			"vision_cfg.image_size is 224, but the weights have positions for 2 patches of 4 pixels on a side"},
		{"pooling", OpenCLIP, renamed(t, oc, same), openclipConfigOf("", `,"pool_type":"mean"`),
			`text_cfg.pool_type "mean" is not supported`},
		{"pooling of patches", OpenCLIP, renamed(t, oc, same), openclipConfigOf(`,"pool_type":"none"`, ""),
			`vision_cfg.pool_type "none" is not supported`},
		{"no pre-norm", OpenCLIP, renamed(t, oc, same), openclipConfigOf(`,"no_ln_pre":true`, ""), "no_ln_pre is true"},
		{"no config", OpenCLIP, renamed(t, oc, same), `{}`, "model_cfg with vision_cfg and text_cfg is missing"},
		{"CoCa", StateDict, tensor.Map{"visual.attn_pool.query": tensor.New(1)}, "", "attention pooling (CoCa)"},
	} {
		_, err := Detect(fromMap(t, c.format, c.m, config(t, c.config), Options{}))
		ok := false
		for _, w := range strings.Split(c.want, "|") {
			ok = ok || err != nil && strings.Contains(err.Error(), w)
		}
		if !ok || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", c.name, err, c.want)
		}
	}
	extra := renamed(t, oc, same)
	extra["transformer.resblocks.0.lora"] = tensor.New(1)
	_, err := Detect(fromMap(t, StateDict, extra, nil, Options{}))
	goldentest.WantErrorOf(t, "a tensor without a place", err, `"transformer.resblocks.0.lora"`)
	ints := renamed(t, oc, same)
	ints["ln_final.weight"] = tensor.OfInts(make([]int64, 8), 8)
	_, err = Detect(fromMap(t, StateDict, ints, nil, Options{}))
	goldentest.WantErrorOf(t, "integer weights", err, "quantised")
}

// Sizes follow OpenAI's rule, heads = width/64, and for configurations the defaults of transformers and OpenCLIP.
func TestSettings(t *testing.T) {
	hf := renamed(t, "testdata/huggingface", same)
	for _, c := range []struct {
		config string
		heads  [2]int
		act    string
		eps    float64
	}{
		{hfConfig("", "", `,"model_type":"clip"`), [2]int{8, 12}, QuickGELU, 1e-5},
		{hfConfig(`,"hidden_act":"gelu","layer_norm_eps":1e-6,"num_attention_heads":4`,
			`,"hidden_act":"gelu","layer_norm_eps":1e-6,"num_attention_heads":6`, ""), [2]int{4, 6}, GELU, 1e-6},
		{strings.Replace(hfConfig(`,"num_attention_heads":1`, "", `,"vision_config_dict":null`), `"text_config"`,
			`"text_config":{"num_attention_heads":4},"text_config_dict"`, 1), [2]int{1, 12}, QuickGELU, 1e-5},
	} {
		a, err := Detect(fromMap(t, HuggingFace, hf, config(t, c.config), Options{}))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if got := [2]int{a.Text.Heads, a.Vision.Heads}; got != c.heads || a.Text.Activation != c.act ||
			a.Vision.Activation != c.act || a.Text.Eps != c.eps {
			t.Errorf("%s: %+v", c.config, a)
		}
	}
	oc := renamed(t, "testdata/openclip", same)
	ckpt := fromMap(t, OpenCLIP, oc, config(t,
		strings.Replace(openclipConfigOf(`,"head_width":6,"norm_kwargs":{"eps":1e-6}`, `,"heads":8`), `"vision_cfg"`,
			`"quick_gelu":true,"vision_cfg"`, 1)), Options{})
	if a, err := Detect(ckpt); err != nil || a.Vision.Heads != 2 || a.Text.Heads != 8 || a.Vision.Eps != 1e-6 ||
		a.Text.Eps != 1e-5 || a.Text.Activation != QuickGELU {
		t.Errorf("%+v %v", a, err)
	}
	n := json.Number("x")
	if _, err := setting(map[string]any{"k": n}, "k", 1); err == nil {
		t.Error("a number that is none")
	}
	_, err := parseJSON([]byte("{} {}"))
	goldentest.WantError(t, err, "text follows it")
}
