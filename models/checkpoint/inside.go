package checkpoint

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"promptfed/models/clip"
	"promptfed/runtime/oneline"
)

// Prefixes of the towers that OpenCLIP takes from timm and from transformers.
const (
	trunk      = "visual.trunk."
	bertInside = "text.transformer."
)

// insideOpenCLIP returns a scheme of OpenCLIP in which a vision transformer of timm or a BERT of transformers replaces
// a tower.
func (s scheme) insideOpenCLIP(ckpt *Checkpoint) scheme {
	if s.trunk = ckpt.Has(trunk + "patch_embed.proj.weight"); s.trunk {
		s.patches, s.class, s.visionPositions = trunk+"patch_embed.proj.weight", trunk+"cls_token", trunk+"pos_embed"
		s.visionPre, s.visionPost = trunk+"norm_pre.", trunk+"norm."
		if ckpt.Has(trunk + "fc_norm.weight") {
			s.visionPost = trunk + "fc_norm."
		}
		s.visionBlocks, s.vision, s.visionProjection = trunk+"blocks.", timmBlock, "visual.head.proj.weight"
		if ckpt.Has(trunk + "head.weight") {
			s.visionProjection = trunk + "head.weight"
		}
	}

	if ckpt.Has(bertInside + wordEmbeddings) {
		s = s.withBERT(bertInside)
		s.textProjection = "text.proj.weight"
		text := section(openclipModel(ckpt.config), "text_cfg")
		s.context, _ = setting(text, "context_length", 77)
		s.pooler = text["hf_pooler_type"] == "cls_pooler" && ckpt.Has(bertInside+"pooler.dense.weight")
	}

	return s
}

// timmTower holds the properties of a timm vision transformer that follow from its name and not from its weights.
type timmTower struct {
	Width, Heads int
	Activation   string
	Epsilon      float64
}

// timmTowers lists the vit_* of timm 1.0.31: those that were compared (TestArchitectures), by name, and the reasons why
// others are not supported. tools/golden/architectures.py writes it.
//
//go:embed timm.json
var timmTowers []byte

var timmTable = sync.OnceValue(func() (t struct {
	Exact   map[string]timmTower
	Refused map[string][]string // reason: names
}) {
	if err := json.Unmarshal(timmTowers, &t); err != nil { // the file is part of the program
		panic(err)
	}
	return t
})

// timmNamed looks up a name of timm, without the tag of its weights.
func timmNamed(name string) (timmTower, error) {
	table := timmTable()
	plain, _, _ := strings.Cut(name, ".")
	if t, ok := table.Exact[plain]; ok {
		return t, nil
	}

	for _, reason := range keys(table.Refused) {
		if slices.Contains(table.Refused[reason], plain) {
			return timmTower{}, fmt.Errorf("timm_model_name %q is not supported, because it has %s: %s",
				oneline.Short(name), reason, otherwise)
		}
	}

	if strings.HasPrefix(plain, "vit_") {
		return timmTower{}, fmt.Errorf("timm_model_name %q is not one of the vision transformers of timm 1.0.31, "+
			"which were compared: %s", oneline.Short(name), otherwise)
	}

	return timmTower{}, fmt.Errorf("timm_model_name %q is not supported, because it is no vision transformer of timm "+
		"(vit_...): %s", oneline.Short(name), otherwise)
}

// textKinds lists the text towers of transformers that are supported inside an OpenCLIP model.
var textKinds = []string{"bert", "roberta", "xlm-roberta"}

// checkInside refuses unsupported towers inside OpenCLIP models, by their names or by tensors that no plain vision
// transformer and no BERT has.
func checkInside(ckpt *Checkpoint, names []string) error {
	model := openclipModel(ckpt.config)
	if name, ok := section(model, "vision_cfg")["timm_model_name"].(string); ok && ckpt.format == OpenCLIP {
		if _, err := timmNamed(name); err != nil {
			return fmt.Errorf("%s: model_cfg.vision_cfg.%w", openclipConfig, err)
		}
	}

	if ckpt.format == OpenCLIP && section(model, "multimodal_cfg") != nil {
		return fmt.Errorf("%s: model_cfg.multimodal_cfg is that of a CoCa, whose image tower ends in an attention "+
			"pooling with many queries, which is not supported: %s", openclipConfig, otherwise)
	}

	for _, library := range []struct{ prefix, key, section, want, what string }{
		{trunk, "timm_model_name", "vision_cfg", "blocks.0.attn.qkv.bias", "a plain vision transformer"},
		{bertInside, "hf_model_name", "text_cfg", "encoder.layer.0.attention.self.query.weight", "a BERT or RoBERTa"},
	} {
		other := slices.IndexFunc(names, func(n string) bool {
			return strings.HasPrefix(n, library.prefix) && !strings.HasPrefix(n, library.prefix+"resblocks.")
		})
		if other >= 0 && !ckpt.Has(library.prefix+library.want) {
			what := "a tower of another library"
			if name := section(model, library.section)[library.key]; name != nil {
				what += fmt.Sprintf(" (%s %s)", library.key, oneline.Short(fmt.Sprint(name)))
			}
			return fmt.Errorf("tensor %q belongs to %s that is not %s: %s", names[other], what, library.what, otherwise)
		}
	}

	return nil
}

// timm reads the vision_cfg of an image tower of timm. The fields of OpenCLIP's own towers are ignored.
func (f *fields) timm(arch *Arch) {
	f.ignore("layers", "width", "head_width", "mlp_ratio", "patch_size", "ls_init_value", "no_ln_pre", "pos_embed_type",
		"final_ln_after_pool", "pool_type", "attentional_pool", "attn_pooler_queries", "attn_pooler_heads",
		"act_kwargs", "norm_kwargs", "timm_model_pretrained", "timm_proj_bias", "timm_drop", "timm_drop_path")

	for key := range plainBlock {
		f.ignore(key)
	}

	name := read(f, "timm_model_name", "")
	known, err := timmNamed(name)
	switch {
	case err != nil:
		f.fail("%w", err)
	case known.Width != arch.Vision.Width:
		f.fail("timm_model_name %q has a width of %d, but the weights say %d", oneline.Short(name), known.Width,
			arch.Vision.Width)
	}

	vision := &arch.Vision
	arch.imageTower().set(known.Heads, known.Activation, known.Epsilon)
	arch.margin(f, 224)
	f.only("timm_proj", "linear", "none", "")
	pool, attention := read(f, "timm_pool", "avg"), vision.Pool == clip.AttentionPool
	ok := false

	switch pool {
	case "": // the pooling of the model itself
		if ok = true; !attention {
			if vision.Pool = ""; vision.NoClass {
				vision.Pool = clip.MeanPool
			}
		}
	case "map":
		ok = attention
	case "token":
		vision.Pool, ok = "", !attention && !vision.NoClass
	case "avg":
		vision.Pool, ok = clip.MeanPool, !attention
	}

	if !ok {
		f.fail("timm_pool %q is not supported, or the weights have another pooling; want token, avg or map: %s",
			oneline.Short(pool), otherwise)
	}
}

// textConfig returns the config.json of a BERT or RoBERTa beside the weights of an OpenCLIP model; nil if there is
// none.
func (c *Checkpoint) textConfig() (map[string]any, error) {
	path := filepath.Join(c.dir, huggingfaceConfig)
	if c.dir == "" || !exists(path) {
		return nil, nil
	}

	config, err := readJSON(path)
	if err != nil {
		return nil, err
	}

	kind, ok := config["model_type"].(string)
	switch {
	case !ok:
		return nil, errors.New(huggingfaceConfig + " beside the weights has no model_type")
	case !slices.Contains(textKinds, kind):
		return nil, nil // the configuration of the whole model in another format
	}

	return config, nil
}
