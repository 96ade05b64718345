package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/models/clip"
)

// settings completes an architecture with what weights do not show: heads, activation and the epsilon of
// normalisations.
func settings(c *Checkpoint, s scheme, a *Arch) error {
	a.Text.Epsilon = 1e-5
	if a.Kind == ViT {
		a.Vision.Epsilon = 1e-5
	}
	var err error
	switch {
	case c.config != nil && (s.huggingface || c.format == HuggingFace && section(c.config, "text_config") != nil):
		err = fromHuggingFace(c.config, s, a)
	case c.format == OpenCLIP && c.config != nil:
		err = fromOpenCLIP(c, s, a)
	default:
		fromNothing(c, s, a)
	}
	if err != nil {
		return err
	}
	if c.opts.Activation != "" {
		a.Text.Activation = c.opts.Activation
		if a.Kind == ViT {
			a.Vision.Activation = c.opts.Activation
		}
	}
	if err := heads("text", "TextHeads", &a.Text, c.opts.TextHeads, a); err != nil {
		return err
	}
	return heads("image", "VisionHeads", &a.Vision, c.opts.VisionHeads, a)
}

// heads applies the override, or the rule of OpenAI's code, width/64, where nothing is known.
func heads(tower, option string, t *Transformer, override int, a *Arch) error {
	switch {
	case override > 0:
		t.Heads = override
	case t.Heads == 0 && t.Width < 64:
		t.Heads = 1
		a.Warnings = append(a.Warnings, fmt.Sprintf("%s tower: nothing says how many heads a width of %d has, so 1 "+
			"is assumed (set %s)", tower, t.Width, option))
	case t.Heads == 0 && t.Width%64 != 0:
		return fmt.Errorf("%s tower: nothing says how many heads a width of %d has; set %s", tower, t.Width, option)
	case t.Heads == 0:
		t.Heads = t.Width / 64
	}
	if t.Heads < 1 || t.Width%t.Heads != 0 {
		return fmt.Errorf("%s tower: a width of %d does not split into %d heads", tower, t.Width, t.Heads)
	}
	return nil
}

// fromNothing is for OpenAI's archives and state dicts, whose activation is known, and for bare files, where it is a
// guess: OpenAI's own loader always builds quick GELU, OpenCLIP's training loop GELU unless it is told otherwise, and
// both use the same names.
func fromNothing(c *Checkpoint, s scheme, a *Arch) {
	act, sure := QuickGELU, false
	switch {
	case c.format == OpenAI, c.Has("input_resolution") && c.Has("vocab_size"), c.named("quickgelu"), c.mixedHalf(s):
		sure = true
	case s.huggingface || c.format == HuggingFace:
	case c.training || strings.HasPrefix(s.tokens, "text."):
		act = GELU
	}
	if !sure && c.opts.Activation == "" {
		a.Warnings = append(a.Warnings, fmt.Sprintf("nothing says which activation the towers use, so %s is assumed "+
			"(OpenAI's and Hugging Face's CLIP use %s, "+
			"what OpenCLIP trains %s; set Activation)", act, QuickGELU, GELU))
	}
	a.Text.Activation = act
	if a.Kind == ViT {
		a.Vision.Activation = act
	}
	if s.bert && !s.huggingface {
		insideBERT(a)
	}
	if s.trunk {
		a.Vision.Activation, a.Vision.Epsilon = GELU, 1e-6
		timmPool("", a)
	}
}

// mixedHalf tells whether the text tower's matrices are in half precision and its normalisations in float32, as
// OpenAI's convert_weights leaves a model and as its state dict keeps it.
func (c *Checkpoint) mixedHalf(s scheme) bool {
	is := func(name, dtype string) bool { return c.Has(name) && c.handles[name].DType == dtype }
	return !s.huggingface && is(s.textBlocks+"0."+s.text.up+"weight", "F16") && is(s.textFinal+"weight", "F32") &&
		is(s.tokens, "F32")
}

// fact is a number that the configuration and the weights both tell.
type fact struct {
	key  string
	have int
}

// agree compares a configuration with the weights; a missing number is no disagreement.
func agree(file, where string, m map[string]any, facts ...fact) error {
	for _, f := range facts {
		v, ok := m[f.key]
		if !ok || v == nil {
			continue
		}
		if pair, ok := v.([]any); ok && len(pair) == 2 && fmt.Sprint(pair[0]) == fmt.Sprint(pair[1]) {
			v = pair[0]
		}
		if n, ok := v.(json.Number); !ok || n.String() != fmt.Sprint(f.have) {
			return fmt.Errorf("%s: %s%s is %s, but the weights say %d", file, where, f.key, oneLine(fmt.Sprint(v)),
				f.have)
		}
	}
	return nil
}

// stages compares the blocks of a ResNet's stages with a configuration, where it lists them.
func stages(file, where string, m map[string]any, a *Arch) error {
	for _, key := range []string{"layers", "depths"} {
		if list, ok := m[key].([]any); ok && a.Kind == ResNet && fmt.Sprint(list) != fmt.Sprint(a.Stages) {
			return fmt.Errorf("%s: %s%s is %s, but the weights say %v", file, where, key, oneLine(fmt.Sprint(list)),
				a.Stages)
		}
	}
	return nil
}

// fromHuggingFace reads a CLIPConfig. Of a ResNet, vision_config tells image_size and layers only. Keys that are left
// out have the defaults of transformers' CLIPTextConfig and CLIPVisionConfig, or of those of the other models;
// text_config_dict and vision_config_dict, of old files, replace text_config and vision_config.
func fromHuggingFace(cfg map[string]any, s scheme, a *Arch) error {
	type defaults struct {
		heads      int
		epsilon    float64
		activation string
	}
	text, vision := defaults{8, 1e-5, QuickGELU}, defaults{12, 1e-5, QuickGELU}
	switch {
	case s.siglip:
		text, vision = defaults{12, 1e-6, GELUTanh}, defaults{12, 1e-6, GELUTanh}
	case s.bert:
		text = defaults{12, 1e-12, GELU}
	}
	towers := []struct {
		key string
		t   *Transformer
		defaults
		extra []fact
	}{
		{"text_config", &a.Text, text, []fact{{"vocab_size", a.Vocab}, {"max_position_embeddings", a.Context}}},
		{"vision_config", &a.Vision, vision, []fact{{"image_size", a.ImageSize}, {"patch_size", a.Patch}}},
	}
	for _, tower := range towers {
		m := section(cfg, tower.key)
		if old := section(cfg, tower.key+"_dict"); old != nil {
			m = old
		}
		t := tower.t
		if t == &a.Vision && a.Kind == ResNet {
			err := agree(huggingfaceConfig, tower.key+".", m, fact{"image_size", a.ImageSize})
			if err == nil {
				err = stages(huggingfaceConfig, tower.key+".", m, a)
			}
			if err != nil {
				return err
			}
			continue
		}
		facts := append(tower.extra, fact{"hidden_size", t.Width}, fact{"num_hidden_layers", t.Layers},
			fact{"intermediate_size", t.MLP})
		if err := agree(huggingfaceConfig, tower.key+".", m, facts...); err != nil {
			return err
		}
		var err error
		if t.Heads, err = setting(m, "num_attention_heads", tower.heads); err == nil {
			t.Epsilon, err = setting(m, "layer_norm_eps", tower.epsilon)
		}
		var act string
		if err == nil {
			act, err = setting(m, "hidden_act", tower.activation)
		}
		if err != nil {
			return fmt.Errorf("%s: %s.%w", huggingfaceConfig, tower.key, err)
		}
		if t.Heads < 1 || !(t.Epsilon > 0) {
			return fmt.Errorf("%s: %s has %d heads and layer_norm_eps %g", huggingfaceConfig, tower.key, t.Heads,
				t.Epsilon)
		}
		if act == "gelu_pytorch_tanh" {
			act = GELUTanh
		}
		if !slices.Contains(activations, act) {
			return fmt.Errorf("%s: %s.hidden_act %q is not supported, want one of %v", huggingfaceConfig, tower.key,
				oneLine(act), activations)
		}
		t.Activation = act
	}
	if s.siglip {
		return agree(huggingfaceConfig, "text_config.", section(cfg, "text_config"), fact{"projection_size",
			a.EmbedDim})
	}
	return agree(huggingfaceConfig, "", cfg, fact{"projection_dim", a.EmbedDim})
}

// neutral lists OpenCLIP options that change the computation, with the values under which they do not.
var neutral = map[string][]string{
	"attentional_pool": {"false"}, "input_patchnorm": {"false"},
	"pos_embed_type": {"learnable"}, "embed_cls": {"false"}, "act_kwargs": {"map[]", "map[approximate:none]",
		"map[approximate:tanh]"},
	"block_type": {"default", "null"}, "qk_norm": {"false"}, "scaled_cosine_attn": {"false"}, "scale_heads": {"false"},
	"attn_type": {""},
}

// openCLIPForm reads what of a tower OpenCLIP may do otherwise than OpenAI's CLIP.
func openCLIPForm(vision, text map[string]any, s scheme, a *Arch) (err error) {
	flag := func(m map[string]any, key string) bool {
		var on bool
		if err == nil {
			on, err = setting(m, key, false)
		}
		return on
	}
	word := func(m map[string]any, key, def string) string {
		if err == nil {
			def, err = setting(m, key, def)
		}
		return def
	}
	pool := word(vision, "pool_type", "tok")
	if flag(vision, "global_average_pool") {
		pool = "avg"
	}
	ok, known := true, true
	switch {
	case s.trunk:
		pool = word(vision, "timm_pool", "avg")
		ok = timmPool(pool, a)
	case a.Kind == ViT:
		a.NormPooled = flag(vision, "final_ln_after_pool")
		if bare := flag(vision, "no_ln_pre"); err == nil && bare != a.NoPreNorm {
			return fmt.Errorf("vision_cfg.no_ln_pre is %v, but the weights say %v", bare, a.NoPreNorm)
		}
		a.VisionPool, ok = map[string]string{"tok": "", "avg": clip.MeanPool}[pool], pool == "tok" || pool == "avg"
	}
	key, at, pools := "pool_type", word(text, "pool_type", "argmax"), map[string]string{"argmax": "", "eos": "",
		"first": clip.FirstPool, "last": clip.LastPool}
	if s.bert {
		usual := "mean_pooler"
		if _, null := text["hf_pooler_type"]; null && !a.RoBERTa {
			usual = "cls_pooler" // of OpenCLIP's table of architectures
		}
		key, at, pools = "hf_pooler_type", word(text, "hf_pooler_type", usual), map[string]string{
			"mean_pooler": clip.MeanPool, "cls_pooler": clip.FirstPool, "cls_last_hidden_state_pooler": clip.FirstPool}
	} else {
		a.Bidirectional = flag(text, "no_causal_mask")
	}
	a.TextPool, known = pools[at]
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("vision_cfg: pooling %q is not supported, or the weights have another one; want %s",
			oneLine(pool), poolings(s.trunk))
	case !known:
		return fmt.Errorf("text_cfg.%s %q is not supported, want one of %v", key, oneLine(at),
			slices.Sorted(maps.Keys(pools)))
	}
	return nil
}

// fromOpenCLIP reads model_cfg of an open_clip_config.json. Defaults are those of OpenCLIP's CLIPVisionCfg and
// CLIPTextCfg.
func fromOpenCLIP(c *Checkpoint, s scheme, a *Arch) error {
	const file = openclipConfig
	model := section(c.config, "model_cfg")
	if model == nil && section(c.config, "vision_cfg") != nil {
		model = c.config
	}
	vision, text := section(model, "vision_cfg"), section(model, "text_cfg")
	if vision == nil || text == nil {
		return fmt.Errorf("%s: model_cfg with vision_cfg and text_cfg is missing", file)
	}
	for _, part := range []struct {
		name string
		cfg  map[string]any
		t    *Transformer
	}{{"vision_cfg", vision, &a.Vision}, {"text_cfg", text, &a.Text}} {
		for _, key := range keys(part.cfg) {
			if ok, known := neutral[key]; known && part.cfg[key] != nil && !slices.Contains(ok,
				fmt.Sprint(part.cfg[key])) {
				return fmt.Errorf("%s: model_cfg.%s.%s = %s is not supported; %s", file, part.name, key,
					oneLine(fmt.Sprint(part.cfg[key])), expected)
			}
		}
		var err error
		if part.t.Epsilon, err = setting(section(part.cfg, "norm_kwargs"), "eps", 1e-5); err != nil {
			return fmt.Errorf("%s: model_cfg.%s.norm_kwargs.%w", file, part.name, err)
		}
	}
	visionFacts := []fact{{"image_size", a.ImageSize}}
	if a.Kind == ResNet {
		a.Vision.Epsilon = normEpsilon // norm_kwargs are those of layer normalisations
		visionFacts = append(visionFacts, fact{"width", a.Vision.Width / 32})
	} else {
		visionFacts = append(visionFacts, fact{"width", a.Vision.Width}, fact{"layers", a.Vision.Layers},
			fact{"patch_size", a.Patch})
	}
	err := agree(file, "model_cfg.", model, fact{"embed_dim", a.EmbedDim})
	if err == nil {
		err = agree(file, "model_cfg.vision_cfg.", vision, visionFacts...)
	}
	if err == nil {
		err = stages(file, "model_cfg.vision_cfg.", vision, a)
	}
	if err == nil {
		err = agree(file, "model_cfg.text_cfg.", text, fact{"width", a.Text.Width}, fact{"layers", a.Text.Layers},
			fact{"context_length", a.Context}, fact{"vocab_size", a.Vocab})
	}
	if err == nil {
		a.Texts, err = openCLIPTreatment(file+": model_cfg.", text)
	}
	if err != nil {
		return err
	}
	if err := openCLIPForm(vision, text, s, a); err != nil {
		return fmt.Errorf("%s: model_cfg.%w", file, err)
	}
	quick, err := setting(model, "quick_gelu", false)
	if err == nil && !s.bert {
		a.Text.Heads, err = setting(text, "heads", 8)
	}
	headWidth := 64
	if err == nil {
		headWidth, err = setting(vision, "head_width", 64)
	}
	if err != nil {
		return fmt.Errorf("%s: model_cfg: %w", file, err)
	}
	if !s.trunk && (headWidth < 1 || a.Vision.Width%headWidth != 0) {
		return fmt.Errorf("%s: model_cfg.vision_cfg.head_width %d does not divide the width %d", file, headWidth,
			a.Vision.Width)
	}
	if !s.trunk {
		a.Vision.Heads = a.Vision.Width / headWidth
	}
	act := GELU
	if quick || c.named("quickgelu") || strings.Contains(strings.ToLower(fmt.Sprint(c.config["model_name"])),
		"quickgelu") {
		act = QuickGELU
	}
	a.Text.Activation = act
	if a.Kind == ViT {
		a.Vision.Activation = act
	}
	for _, tower := range []struct {
		cfg map[string]any
		t   *Transformer
	}{{vision, &a.Vision}, {text, &a.Text}} {
		if section(tower.cfg, "act_kwargs")["approximate"] == "tanh" && tower.t.Activation == GELU {
			tower.t.Activation = GELUTanh
		}
	}
	if s.bert {
		insideBERT(a)
	}
	if s.trunk {
		if err := timmSettings(fmt.Sprint(vision["timm_model_name"]), &a.Vision); err != nil {
			return fmt.Errorf("%s: model_cfg.vision_cfg.%w", file, err)
		}
	}
	return nil
}
