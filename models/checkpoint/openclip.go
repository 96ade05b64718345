package checkpoint

import (
	"cmp"
	"maps"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/oneline"
)

// plainBlock lists options of OpenCLIP's blocks that change the computation, with the values that do not.
var plainBlock = map[string][]string{"block_type": {"default"}, "qk_norm": {"false"}, "scaled_cosine_attn": {"false"},
	"scale_heads": {"false"}, "scale_attn_inner": {"false"}, "scale_attn": {"false"}, "scale_fc": {"false"}}

// openclipModel returns the object of an OpenCLIP configuration that holds vision_cfg and text_cfg: its model_cfg, or
// the configuration itself if that is only the model_cfg.
func openclipModel(config map[string]any) map[string]any {
	if model := section(config, "model_cfg"); model != nil {
		return model
	}
	return config
}

// fromOpenCLIP reads model_cfg of an open_clip_config.json: CLIPVisionCfg and CLIPTextCfg of OpenCLIP 3.3, with their
// defaults for missing fields. The package preprocess reads preprocess_cfg.
func fromOpenCLIP(ckpt *Checkpoint, scheme scheme, arch *Arch) error {
	top := fieldsOf(openclipConfig, ckpt.config)
	top.ignore("preprocess_cfg")
	model := top.object("model_cfg")
	if !top.has("model_cfg") && top.has("vision_cfg") {
		model = top
	}

	if !model.has("vision_cfg") || !model.has("text_cfg") {
		top.fail("model_cfg with vision_cfg and text_cfg is missing")
	}

	vision, text := model.object("vision_cfg"), model.object("text_cfg")
	model.same("embed_dim", arch.Text.EmbedDim, 0)
	model.ignore("custom_text", "init_logit_bias", "init_logit_scale", "nonscalar_logit_scale", "cast_dtype",
		"output_dict")
	act := GELU
	if read(model, "quick_gelu", false) {
		act = QuickGELU
	}

	vision.ignore("output_tokens", "patch_dropout")
	switch {
	case scheme.trunk:
		vision.timm(arch)
	case arch.Vision.ResNet():
		vision.resnet(arch)
	default:
		vision.vit(arch, act)
	}

	text.ignore("output_tokens")
	if scheme.bert {
		text.huggingface(ckpt, scheme, arch)
	} else {
		text.transformerText(arch, act)
	}

	var err error
	if arch.Texts, err = openCLIPTreatment("model_cfg.", text.values); err != nil {
		top.fail("%w", err)
	}

	text.ignore("hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs")
	return done(vision, text, model, top)
}

// towerBlocks reads the common fields of OpenCLIP's own transformers.
func (f *fields) towerBlocks(tower tower, act string) {
	for _, key := range slices.Sorted(maps.Keys(plainBlock)) {
		f.only(key, plainBlock[key]...)
	}

	if units := int(float64(tower.width) * read(f, "mlp_ratio", 4.0)); units != tower.units {
		f.fail("mlp_ratio makes feed-forward layers of %d units, but the weights say %d", units, tower.units)
	}

	f.ignore("ls_init_value") // layer scale follows from the weights
	norm, activation := f.object("norm_kwargs"), f.object("act_kwargs")
	*tower.epsilon, *tower.activation = read(norm, "eps", 1e-5), act
	norm.only("elementwise_affine", "true")
	norm.only("bias", "true")
	if !(*tower.epsilon > 0) {
		norm.fail("eps is %g, want a positive number", *tower.epsilon)
	}

	approximate := read(activation, "approximate", "none")
	switch {
	case approximate == "tanh" && act == GELU:
		*tower.activation = GELUTanh
	case approximate != "none" || act != GELU && f.has("act_kwargs"):
		activation.fail("approximate %q is not supported with activation %s, want none or tanh with %s",
			oneline.Short(approximate), act, GELU)
	}

	done(norm, activation)
}

// vit reads the vision_cfg of OpenCLIP's own vision transformer.
func (f *fields) vit(a *Arch, act string) {
	arch := &a.Vision
	f.same("width", arch.Width, 768)
	f.same("layers", arch.Layers, 12)
	f.same("patch_size", arch.Patch, 16)
	a.margin(f, 224)
	f.towerBlocks(a.imageTower(), act)
	f.headWidth(a)
	f.only("attentional_pool", "false")
	f.only("pos_embed_type", "learnable")

	f.ignore("attn_pooler_queries", "attn_pooler_heads") // belong to attentional_pool
	f.absent("timm_model_name")
	f.ignore("timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias", "timm_drop", "timm_drop_path")
	f.only("global_average_pool", "false") // of old releases, like the next one
	f.only("input_patchnorm", "false")
	arch.NormPooled = read(f, "final_ln_after_pool", false)
	if bare := read(f, "no_ln_pre", false); bare != arch.NoPreNorm {
		f.fail("no_ln_pre is %v, but the weights say %v", bare, arch.NoPreNorm)
	}

	arch.Pool = pooling(f, "pool_type", read(f, "pool_type", "tok"), map[string]string{"tok": "", "avg": clip.MeanPool})
}

// resnet reads the vision_cfg of CLIP's ResNet.
func (f *fields) resnet(a *Arch) {
	f.same("width", a.Vision.Width/32, 64)
	f.stages("layers", a)
	a.margin(f, 224)
	f.headWidth(a)
	a.Vision.Eps = normEpsilon
	f.ignore("patch_size", "mlp_ratio") // belong to transformers
}

func (f *fields) headWidth(a *Arch) {
	width, one := a.Vision.Width, read(f, "head_width", 64)
	if one < 1 || width%one != 0 {
		f.fail("head_width %d does not divide the width %d", one, width)
		return
	}
	a.Vision.Heads = width / one
}

// transformerText reads the text_cfg of OpenCLIP's own text tower.
func (f *fields) transformerText(arch *Arch, act string) {
	text := &arch.Text
	f.same("context_length", text.Context, 77)
	f.same("vocab_size", arch.Vocab, 49408)
	f.same("width", text.Width, 512)
	f.same("layers", text.Layers, 12)
	text.Heads = read(f, "heads", 8)
	f.towerBlocks(arch.textTower(), act)
	f.only("embed_cls", "false")
	f.only("final_ln_after_pool", "false")
	want := "linear"
	if text.NoProjection {
		want = "none"
	}

	if kind := read(f, "proj_type", "linear"); kind != want {
		f.fail("proj_type %q is not that of the weights, %s", oneline.Short(kind), want)
	}

	f.absent("hf_model_name")
	f.ignore("pad_id", "proj_bias", "hf_model_pretrained", "hf_proj_type", "hf_pooler_type")
	text.Bidirectional = read(f, "no_causal_mask", false)
	pool := read(f, "pool_type", "argmax")
	text.Pool = pooling(f, "pool_type", pool, map[string]string{"argmax": "", "eos": "", "first": clip.FirstPool,
		"last": clip.LastPool})
	end := read(f, "eos_id", 2)
	switch pool {
	case "argmax":
		arch.EndToken = LargestToken
	case "eos":
		arch.EndToken = end
	}
}

// pooling returns the name of a pooling in the package clip.
func pooling(f *fields, key, name string, known map[string]string) string {
	if _, ok := known[name]; !ok {
		f.fail("%s %q is not supported, want one of %v: %s", key, oneline.Short(name), slices.Sorted(maps.Keys(known)),
			otherwise)
	}
	return known[name]
}

// knownText lists text towers of transformers by their names in OpenCLIP's configurations, with width, heads and
// epsilon of their config.json on the Hub.
var knownText = map[string]clip.TextArch{
	"roberta-base":      {Width: 768, Heads: 12, Eps: 1e-5},
	"xlm-roberta-base":  {Width: 768, Heads: 12, Eps: 1e-5},
	"xlm-roberta-large": {Width: 1024, Heads: 16, Eps: 1e-5},
	"bert-base-uncased": {Width: 768, Heads: 12, Eps: 1e-12},
	"microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract": {Width: 768, Heads: 12, Eps: 1e-12},
	"microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": {Width: 768, Heads: 12, Eps: 1e-12},
}

// huggingface reads the text_cfg of a BERT or RoBERTa of transformers: its config.json beside the weights or the entry
// of knownText, and how OpenCLIP reads features from it. The fields of OpenCLIP's own tower are ignored.
func (f *fields) huggingface(ckpt *Checkpoint, scheme scheme, arch *Arch) {
	f.ignore("context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "ls_init_value", "embed_cls",
		"pad_id", "eos_id", "no_causal_mask", "final_ln_after_pool", "pool_type", "proj_bias", "proj_type",
		"hf_model_pretrained", "act_kwargs", "norm_kwargs")
	f.ignore(slices.Collect(maps.Keys(plainBlock))...)
	name := read(f, "hf_model_name", "")
	known, ok := knownText[name]
	config, err := ckpt.textConfig()
	switch {
	case err != nil:
		f.fail("hf_model_name %q: %w", oneline.Short(name), err)
	case config != nil:
		own := fieldsOf(huggingfaceConfig, config)
		if kind := read(own, "model_type", ""); (kind == "bert") == arch.RoBERTa {
			own.fail("model_type %q is not that of the weights", kind)
		}
		own.bert(arch, ckpt.handles[scheme.textPositions].Shape[0])
		if err := done(own); err != nil {
			f.fail("hf_model_name %q: %w", oneline.Short(name), err)
		}
	case !ok || known.Width != arch.Text.Width:
		f.fail("hf_model_name %q with a width of %d is not among those that are known by name (%v): put its %s beside "+
			"the weights", oneline.Short(name), arch.Text.Width, slices.Sorted(maps.Keys(knownText)), huggingfaceConfig)
	default:
		arch.textTower().set(known.Heads, GELU, known.Eps)
		if arch.PadToken = 0; arch.RoBERTa {
			arch.PadToken = 1
		}
	}

	kind, want := read(f, "hf_proj_type", "mlp"), "linear"
	if arch.Text.Hidden > 0 {
		want = "mlp"
	}

	if kind != want {
		f.fail("hf_proj_type %q is not that of the weights, %s", oneline.Short(kind), want)
	}

	usual := "mean_pooler"
	if _, there := f.values["hf_pooler_type"]; there && !arch.RoBERTa {
		usual = "cls_pooler" // OpenCLIP's table of architectures has this for null
	}

	arch.Text.Pool = pooling(f, "hf_pooler_type", cmp.Or(read(f, "hf_pooler_type", usual), usual), map[string]string{
		"mean_pooler": clip.MeanPool, "cls_pooler": clip.FirstPool, "cls_last_hidden_state_pooler": clip.FirstPool})
}
