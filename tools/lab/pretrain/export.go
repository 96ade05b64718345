package pretrain

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"promptfed/models/preprocess"
	"promptfed/models/tiny"
	"promptfed/models/tokenizer"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Files of an exported backbone besides tokenizer.json, with OpenCLIP's names.
const (
	weightsFile = "open_clip_model.safetensors"
	configFile  = "open_clip_config.json"
)

// vocabulary keeps the configured number of merges of the bundled backbones.
func (c Config) vocabulary() (*tokenizer.Tokenizer, error) {
	return tokenizer.FromMerges(bytes.NewReader(tiny.Merges()), c.Merges)
}

// Export writes the backbone as an OpenCLIP folder in half precision, with its tokenizer.
func Export(cfg Config, weights tensor.Map) error {
	tok, err := cfg.vocabulary()
	if err != nil {
		return err
	}

	if err := os.MkdirAll(cfg.Out, 0o755); err != nil {
		return err
	}

	description, err := json.MarshalIndent(describe(cfg, weights), "", "  ")
	if err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(cfg.Out, configFile), append(description, '\n'), 0o644); err != nil {
		return err
	}

	if err := tok.WriteHF(cfg.Out); err != nil {
		return err
	}

	return safetensors.WriteHalfFile(filepath.Join(cfg.Out, weightsFile), weights, map[string]string{"name": cfg.Name})
}

// describe returns the content of open_clip_config.json.
func describe(cfg Config, weights tensor.Map) any {
	prep := preprocess.CLIP(cfg.Size)
	vision := map[string]any{"image_size": cfg.Size, "layers": cfg.Image.Layers, "width": cfg.Image.Width,
		"head_width": cfg.Image.Width / max(1, cfg.Image.Heads), "patch_size": cfg.Patch}
	if len(cfg.Stages) > 0 { // OpenCLIP's width of a ResNet is the width of its stem
		vision = map[string]any{"image_size": cfg.Size, "layers": cfg.Stages, "width": cfg.Image.Width / 32}
	}

	return map[string]any{
		"model_cfg": map[string]any{
			"embed_dim":  cfg.EmbedDim,
			"quick_gelu": true,
			"vision_cfg": vision,
			"text_cfg": map[string]any{"context_length": contextLength, "vocab_size": weights[tokenTable].Shape[0],
				"width": cfg.Text.Width,
				"heads": cfg.Text.Heads, "layers": cfg.Text.Layers},
		},
		"preprocess_cfg": map[string]any{"mean": prep.Mean, "std": prep.Std, "interpolation": prep.Resize},
	}
}
