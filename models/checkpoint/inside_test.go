package checkpoint

import (
	"maps"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Names of timm are looked up without the tag of their weights; other names are refused with the reason
// (tools/golden/architectures.py asked timm 1.0.31).
func TestTimmNames(t *testing.T) {
	n, err := timmNamed("vit_so400m_patch14_siglip_384.webli")
	if err != nil || n != (timmTower{1152, 16, GELU, 1e-6}) {
		t.Errorf("%+v, %v", n, err)
	}
	for name, want := range map[string]string{"vit_pe_core_base_patch16_224": "rotary positions",
		"vit_base_mci_224": "a convolutional stem", "vitamin_base_224": "no vision transformer of timm",
		"vit_base_patch16_new_224": "not one of the vision transformers of timm 1.0.31"} {
		_, err := timmNamed(name)
		goldentest.WantErrorOf(t, name, err, want)
	}
}

// The errors for unsupported towers of other libraries inside an OpenCLIP model name the tower and the next step.
func TestOtherLibrariesAreNamed(t *testing.T) {
	timm := tensor.Map{trunk + "patch_embed.proj.weight": tensor.New(1),
		trunk + "blocks.0.attn.qkv.bias": tensor.New(1), "token_embedding.weight": tensor.New(1, 1)}
	with := func(m tensor.Map, name string) tensor.Map {
		m = maps.Clone(m)
		m[name] = tensor.New(1)
		return m
	}
	for _, c := range []struct {
		what         string
		m            tensor.Map
		vision, text string
		want         string
	}{
		{"a network of convolutions", timm, `,"timm_model_name":"convnext_base"`, "",
			"is no vision transformer of timm"},
		{"rotary positions", timm, `,"timm_model_name":"vit_pe_core_base_patch16_224"`, "", "it has rotary positions"},
		{"a convolutional stem", timm, `,"timm_model_name":"vit_base_mci_224"`, "", "it has a convolutional stem"},
		{"another text tower", with(timm, bertInside+"encoder.block.0.weight"), "",
			`,"hf_model_name":"google/mt5-base"`, "(hf_model_name google/mt5-base) that is not a BERT or RoBERTa"},
		{"registers", timm, `,"timm_model_name":"vit_base_patch14_reg4_dinov2"`, "", "it has register tokens"},
		{"two layers", with(timm, "visual.head.mlp.fc1.weight"), "", "", "timm_proj mlp"},
	} {
		_, err := CLIP(fromMap(t, OpenCLIP, c.m, config(t, openclipConfigOf(c.vision, c.text)), Options{}))
		goldentest.WantErrorOf(t, c.what, err, c.want)
	}
	// These weights have no attention pooling.
	image := fieldsOf("vision_cfg", map[string]any{"timm_model_name": "vit_so400m_patch14_siglip_384",
		"timm_pool": "map"})
	image.timm(&Arch{Vision: clip.VisionArch{Width: 1152, Image: 224}})
	goldentest.WantError(t, *image.err, `timm_pool "map" is not supported, or the weights have another pooling`)
	// A published text tower of width 768 is not known by its name where the weights have another width.
	text := fieldsOf("text_cfg", map[string]any{"hf_model_name": "roberta-base"})
	text.huggingface(fromMap(t, OpenCLIP, nil, nil, Options{}), scheme{}, &Arch{})
	goldentest.WantError(t, *text.err, `hf_model_name "roberta-base" with a width of 0 is not among those`)
}
