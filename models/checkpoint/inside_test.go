package checkpoint

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"promptfed/runtime/tensor"
)

// Heads, activation and epsilon are those with which timm makes its plain vision transformers, as
// tools/golden/inside.py asked it.
func TestTimmSettings(t *testing.T) {
	data, err := os.ReadFile("testdata/timm.json")
	if err != nil {
		t.Fatal(err)
	}
	var timm map[string][4]any
	if err := json.Unmarshal(data, &timm); err != nil || len(timm) < 100 {
		t.Fatal(len(timm), err)
	}
	for name, want := range timm {
		tower := Transformer{Width: int(want[0].(float64))}
		err := timmSettings(name+".webli", &tower)
		if err == nil {
			err = heads("image", "VisionHeads", &tower, 0, &Arch{})
		}
		if err != nil || tower.Heads != int(want[1].(float64)) || tower.Activation != want[2] ||
			tower.Epsilon != want[3] {
			t.Errorf("%s: %+v, %v, want %v", name, tower, err, want)
		}
	}
}

// Towers of other libraries inside an OpenCLIP model that cannot be read are named, with what to do.
func TestOtherLibrariesAreNamed(t *testing.T) {
	const bundles = "../bundle/converted/testdata/"
	for _, c := range []struct{ what, path, from, to, config, want string }{
		{"a network of convolutions", "openclip-bert", trunk + "blocks.", trunk + "stages.",
			`"timm_model_name": "convnext_base"`, "(timm_model_name convnext_base) that is not a plain vision transf"},
		{"another text tower", "openclip-bert", bertInside + "encoder.layer.", bertInside + "encoder.block.",
			`"hf_model_name": "google/mt5-base"`, "(hf_model_name google/mt5-base) that is not a BERT or RoBERTa"},
		{"registers", "openclip-bert", trunk + "cls_token", trunk + "reg_token", "", "register tokens"},
		{"two layers", "openclip-bert", "visual.head.proj.weight", "visual.head.mlp.fc1.weight", "", "timm_proj mlp"},
		{"no such vision transformer", "openclip-bert", "", "", `"timm_model_name": "vit_base_patch16_rpn_224"`,
			`timm_model_name "vit_base_patch16_rpn_224" is not supported, want a plain vision transformer`},
		{"maxima", "openclip-bert", "", "", `"hf_pooler_type": "max_pooler"`, `hf_pooler_type "max_pooler" is not`},
		{"a pooling without its weights", "openclip-bert", "", "", `"timm_pool": "map"`, `pooling "map"`},
		{"a class token that is not there", "openclip-siglip", "", "", `"timm_pool": "token"`, `pooling "token"`},
		{"a context of words", "openclip-bert", "", "", `"context_length": "long"`,
			"context_length is long, but the weights say 60"},
		{"no context", "openclip-bert", "", "", `"context_length": -2`, "context_length is -2, but the weights say 60"},
	} {
		m := renamed(t, bundles+c.path, func(name string) string {
			if c.from == "" {
				return name
			}
			return strings.Replace(name, c.from, c.to, 1)
		})
		if m[trunk+"reg_token"] != nil {
			m[trunk+"cls_token"] = tensor.New(1, 1, 12)
		}
		cfg, err := readJSON(bundles + c.path + "/open_clip_config.json")
		if err != nil {
			t.Fatal(err)
		}
		if key, value, ok := strings.Cut(c.config, ": "); ok {
			part := "vision_cfg"
			if strings.Contains(key, "hf_") || strings.Contains(key, "context") {
				part = "text_cfg"
			}
			dec := json.NewDecoder(strings.NewReader(value))
			dec.UseNumber()
			var v any
			if err := dec.Decode(&v); err != nil {
				t.Fatal(err)
			}
			section(section(cfg, "model_cfg"), part)[strings.Trim(key, `"`)] = v
		}
		ckpt, err := FromMap(OpenCLIP, m, cfg, Options{TextHeads: 2, VisionHeads: 2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = CLIP(ckpt); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", c.what, err, c.want)
		}
	}
}
