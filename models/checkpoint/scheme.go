package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// scheme is one way of naming the tensors of a CLIP. Names that end in "." take "weight" and "bias".
type scheme struct {
	huggingface                                      bool
	tokens, textPositions, textFinal, textProjection string
	textBlocks, visionBlocks                         string
	patches, class, visionPositions                  string
	visionPre, visionPost, visionProjection          string
	norm1, norm2, up, down, out                      string
	// projections are Linear [embed,width]; otherwise [width,embed]
	linearProjection bool
	towers           []string // prefixes under which nothing unknown may be left
	resnet           bool
	// prefix of a ResNet image tower, with OpenAI's names behind it
	visual string
	siglip bool
}

// openaiScheme names tensors as OpenAI's CLIP and OpenCLIP do. OpenCLIP's "custom text" models put text. before the
// names of the text tower, and may keep its projection as a Linear.
func openaiScheme(text string, linearText bool) scheme {
	s := scheme{
		tokens: text + "token_embedding.weight", textPositions: text + "positional_embedding", textFinal: text +
			"ln_final.",
		textProjection: text + "text_projection", textBlocks: text + "transformer.resblocks.",
		visionBlocks: "visual.transformer.resblocks.", patches: "visual.conv1.weight", class: "visual.class_embedding",
		visionPositions: "visual.positional_embedding", visionPre: "visual.ln_pre.", visionPost: "visual.ln_post.",
		visionProjection: "visual.proj", norm1: "ln_1.", norm2: "ln_2.", up: "mlp.c_fc.", down: "mlp.c_proj.",
		out: "attn.out_proj.", towers: []string{"visual.", "transformer.", "text."},
	}
	if linearText {
		s.textProjection += ".weight"
	}
	return s
}

var huggingfaceScheme = scheme{
	huggingface: true, tokens: "text_model.embeddings.token_embedding.weight",
	textPositions: "text_model.embeddings.position_embedding.weight", textFinal: "text_model.final_layer_norm.",
	textProjection: "text_projection.weight", textBlocks: "text_model.encoder.layers.",
	visionBlocks: "vision_model.encoder.layers.", patches: "vision_model.embeddings.patch_embedding.weight",
	class:           "vision_model.embeddings.class_embedding",
	visionPositions: "vision_model.embeddings.position_embedding.weight",
	visionPre:       "vision_model.pre_layrnorm.", visionPost: "vision_model.post_layernorm.",
	visionProjection: "visual_projection.weight", norm1: "layer_norm1.", norm2: "layer_norm2.", up: "mlp.fc1.",
	down: "mlp.fc2.", out: "self_attn.out_proj.", linearProjection: true, towers: []string{"vision_model.",
		"text_model."},
}

// siglipScheme is that of transformers' SiglipModel: Hugging Face's, with heads in place of projections.
var siglipScheme = func() scheme {
	s := huggingfaceScheme
	s.siglip, s.textProjection = true, "text_model.head.weight"
	return s
}()

// unsupported tensors and what they give away.
var unsupported = []struct{ part, what string }{
	{"visual.trunk.", "an image tower of timm (of SigLIP, take the folder in transformers' form)"},
	{"text.transformer.embeddings.", "a text tower of Hugging Face inside an OpenCLIP model"},
	{"text.transformer.encoder.", "a text tower of Hugging Face inside an OpenCLIP model"},
	{"visual.attn_pool.", "attention pooling (CoCa)"},
	{"text_decoder.", "a text decoder (CoCa)"},
}

const expected = "want a CLIP with a ViT or ResNet image tower (OpenAI's names visual.conv1.weight and " +
	"token_embedding.weight, " +
	"or Hugging Face's vision_model. and text_model., of CLIP or SigLIP)"

// modelTypes are those of config.json that can be read.
var modelTypes = []string{"clip", "siglip"}

// schemeOf tells the naming scheme of a checkpoint, or why it is not a CLIP.
func schemeOf(c *Checkpoint) (scheme, error) {
	names := c.Names()
	for _, f := range unsupported {
		for _, n := range names {
			if strings.Contains(n, f.part) {
				return scheme{}, fmt.Errorf("tensor %q belongs to %s, which is not supported; %s", n, f.what, expected)
			}
		}
	}
	hfText, hfVision := c.Has(huggingfaceScheme.tokens), c.Has(huggingfaceScheme.patches)
	prefix, resnet := resnetPrefix(c)
	resnet = resnet && !hfVision
	if kind, ok := c.config["model_type"].(string); ok && c.format == HuggingFace && !slices.Contains(modelTypes, kind) && !resnet {
		return scheme{}, fmt.Errorf("config.json says model_type %q, which is not supported; %s", oneLine(kind),
			expected)
	}
	vision := c.Has("visual.conv1.weight") || resnet
	text, custom := c.Has("token_embedding.weight"), c.Has("text.token_embedding.weight")
	var s scheme
	switch {
	case hfText && hfVision && c.Has("vision_model.head.probe"):
		s = siglipScheme
	case hfText && (hfVision || resnet):
		s = huggingfaceScheme
	case vision && text:
		s = openaiScheme("", c.Has("text_projection.weight"))
	case vision && custom:
		s = openaiScheme("text.", c.Has("text.text_projection.weight"))
	case hfText || text || custom:
		return scheme{}, fmt.Errorf("the checkpoint has a text tower but no image tower; %s", expected)
	case hfVision || vision:
		return scheme{}, fmt.Errorf("the checkpoint has an image tower but no text tower; %s", expected)
	default:
		return scheme{}, fmt.Errorf("not a CLIP: its tensors are named like %s; %s", sample(names), expected)
	}
	if kind := c.config["model_type"]; c.format == HuggingFace && !resnet && (kind == "siglip") != s.siglip && kind != nil {
		return s, fmt.Errorf("config.json says model_type %q, but the tensors are not those of one; %s", kind, expected)
	}
	if resnet {
		s = s.withResNet(c, prefix)
	}
	return s, nil
}

// withResNet puts a ResNet behind a prefix in place of the image tower. Its projection is part of the attention
// pooling, and that of the text tower may be stored either way.
func (s scheme) withResNet(c *Checkpoint, prefix string) scheme {
	s.resnet, s.visual = true, prefix
	s.towers = append(slices.Clone(s.towers), "visual_projection.")
	if prefix != "" {
		s.towers = append(s.towers, prefix)
	}
	if plain := strings.TrimSuffix(s.textProjection, ".weight"); !c.Has(s.textProjection) && c.Has(plain) {
		s.textProjection, s.linearProjection = plain, false
	}
	return s
}

// sample quotes the first names of a list.
func sample(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var quoted []string
	for _, n := range names[:min(3, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%q", oneLine(n)))
	}
	return strings.Join(quoted, ", ")
}
