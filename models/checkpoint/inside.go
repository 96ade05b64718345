package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/models/clip"
)

// Prefixes of the towers that OpenCLIP takes from timm and from transformers.
const (
	trunk      = "visual.trunk."
	bertInside = "text.transformer."
)

// insideOpenCLIP is a scheme of OpenCLIP with a vision transformer of timm or a BERT of transformers in place of a
// tower.
func (s scheme) insideOpenCLIP(c *Checkpoint) scheme {
	if s.trunk = c.Has(trunk + "patch_embed.proj.weight"); s.trunk {
		s.patches, s.class, s.visionPositions = trunk+"patch_embed.proj.weight", trunk+"cls_token", trunk+"pos_embed"
		s.visionPre, s.visionPost = trunk+"norm_pre.", trunk+"norm."
		if c.Has(trunk + "fc_norm.weight") {
			s.visionPost = trunk + "fc_norm."
		}
		s.visionBlocks, s.vision, s.visionProjection = trunk+"blocks.", timmBlock, "visual.head.proj.weight"
		if c.Has(trunk + "head.weight") {
			s.visionProjection = trunk + "head.weight"
		}
	}
	if s.bert = c.Has(bertInside + "embeddings.word_embeddings.weight"); s.bert {
		s.tokens, s.textBlocks = bertInside+"embeddings.word_embeddings.weight", bertInside+"encoder.layer."
		s.textPositions, s.textProjection = bertInside+"embeddings.position_embeddings.weight", "text.proj.weight"
		text := section(section(c.config, "model_cfg"), "text_cfg")
		s.context, _ = setting(text, "context_length", 77)
		s.pooler = text["hf_pooler_type"] == "cls_pooler" && c.Has(bertInside+"pooler.dense.weight")
	}
	return s
}

// checkInside refuses towers inside OpenCLIP models that are no plain vision transformer and no BERT.
func checkInside(c *Checkpoint, names []string) error {
	model := section(c.config, "model_cfg")
	for _, f := range []struct{ prefix, key, section, want, what string }{
		{trunk, "timm_model_name", "vision_cfg", "blocks.0.attn.qkv.bias", "a plain vision transformer"},
		{bertInside, "hf_model_name", "text_cfg", "encoder.layer.0.attention.self.query.weight", "a BERT or RoBERTa"},
	} {
		other := slices.IndexFunc(names, func(n string) bool {
			return strings.HasPrefix(n, f.prefix) && !strings.HasPrefix(n, f.prefix+"resblocks.")
		})
		if other >= 0 && !c.Has(f.prefix+f.want) {
			what := "a tower of another library"
			if name := section(model, f.section)[f.key]; name != nil {
				what += fmt.Sprintf(" (%s %s)", f.key, oneLine(fmt.Sprint(name)))
			}
			return fmt.Errorf("tensor %q belongs to %s that is not %s: %s", names[other], what, f.what, otherwise)
		}
	}
	return nil
}

func poolings(trunk bool) string {
	if trunk {
		return "token, avg or map"
	}
	return "tok or avg"
}

// timmPool sets the pooling of a vision transformer of timm; that which its model has by itself for "". ok is false
// where the weights have another one.
func timmPool(pool string, a *Arch) (ok bool) {
	attention := a.VisionPool == clip.AttentionPool
	switch pool {
	case "map":
		return attention
	case "":
		if attention {
			return true
		}
		if a.VisionPool = ""; a.NoClass {
			a.VisionPool = clip.MeanPool
		}
		return true
	case "token":
		a.VisionPool = ""
		return !attention && !a.NoClass
	case "avg":
		a.VisionPool = clip.MeanPool
		return !attention
	}
	return false
}

// timmSettings are what the names of timm's vision transformers tell and weights do not: heads, activation and epsilon
// (timm 1.0.15, models/vision_transformer.py).
func timmSettings(name string, t *Transformer) error {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
	}
	if name, _, _ = strings.Cut(name, "."); !strings.HasPrefix(name, "vit_") || has("_rpn_", "_relpos_", "_srelpos_") {
		return fmt.Errorf("timm_model_name %q is not supported, want a plain vision transformer, vit_...: %s",
			oneLine(name), otherwise)
	}
	t.Epsilon, t.Activation = 1e-6, GELU
	if has("_clip_") {
		t.Epsilon = 1e-5
	}
	switch {
	case has("quickgelu"):
		t.Activation = QuickGELU
	case has("_siglip_") && has("_patch32_", "_so400m_patch16_", "_giantopt_", "_siglip_512", "_gap_512") &&
		!has("_base_patch16_"):
		t.Activation = GELUTanh
	}
	if has("_huge_", "_giant_", "_gigantic_", "_so400m_", "_giantopt_", "vit_base_patch16_gap_") {
		t.Heads = 16
	}
	return nil
}

// insideBERT are the defaults of transformers' BertConfig and of the published RoBERTas.
func insideBERT(a *Arch) {
	a.Text.Activation, a.Text.Epsilon = GELU, 1e-12
	if a.RoBERTa {
		a.Text.Epsilon = 1e-5
	}
}
