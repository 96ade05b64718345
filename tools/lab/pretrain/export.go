package pretrain

import (
	"bytes"
	"os"
	"path/filepath"

	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tiny"
	"promptfed/models/tokenizer"
	"promptfed/runtime/atomicfile"
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

	description := OpenCLIP(cfg.text(), cfg.image(), weights[tokenTable].Shape[0])
	err = atomicfile.Write(filepath.Join(cfg.Out, configFile), atomicfile.JSON(description, "  "))
	if err != nil {
		return err
	}

	if err := tok.WriteHF(cfg.Out); err != nil {
		return err
	}

	return safetensors.WriteHalfFile(filepath.Join(cfg.Out, weightsFile), weights, map[string]string{"name": cfg.Name})
}

// OpenCLIP returns the content of open_clip_config.json for towers, with so many tokens.
func OpenCLIP(text clip.TextArch, image clip.VisionArch, vocabulary int) any {
	prep := preprocess.CLIP(image.Image)
	vision := map[string]any{"image_size": image.Image, "layers": image.Layers, "width": image.Width,
		"head_width": image.Width / max(1, image.Heads), "patch_size": image.Patch}
	if image.ResNet() { // OpenCLIP's width of a ResNet is the width of its stem
		vision = map[string]any{"image_size": image.Image, "layers": image.Stages, "width": image.Width / 32}
	}

	return map[string]any{
		"model_cfg": map[string]any{
			"embed_dim":  text.EmbedDim,
			"quick_gelu": true,
			"vision_cfg": vision,
			"text_cfg": map[string]any{"context_length": text.Context, "vocab_size": vocabulary, "width": text.Width,
				"heads": text.Heads, "layers": text.Layers},
		},
		"preprocess_cfg": map[string]any{"mean": prep.Mean, "std": prep.Std, "interpolation": prep.Resize},
	}
}
