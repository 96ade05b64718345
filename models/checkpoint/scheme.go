package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/oneline"
)

// scheme is a naming scheme of the tensors of a CLIP. Names that end in "." are completed by "weight" and "bias".
type scheme struct {
	huggingface                                      bool
	tokens, textPositions, textFinal, textProjection string
	textBlocks, visionBlocks                         string
	patches, class, visionPositions                  string
	visionPre, visionPost, visionProjection          string
	text, vision                                     blockNames
	// projections are Linear [embed,width]; otherwise [width,embed]
	linearProjection bool
	towers           []string // prefixes under which every tensor must be known
	resnet           bool
	// prefix of a ResNet image tower, before OpenAI's names
	visual string
	siglip bool
	bert   bool // the text tower is a BERT
	// context is the number of a BERT's positions that are used, 0 for all; pooler means that features pass through its
	// pooler
	context int
	pooler  bool
	// trunk means an image tower of timm inside an OpenCLIP model
	trunk bool
}

// blockNames holds the names of the tensors of a residual block. fused is the common projection of queries, keys and
// values, or parts are the three. scales are the names of layer scale.
type blockNames struct {
	norm1, norm2, up, down, out, fused string
	parts                              [3]string
	scales                             [2]string
}

var (
	openaiBlock = blockNames{"ln_1.", "ln_2.", "mlp.c_fc.", "mlp.c_proj.", "attn.out_proj.", "attn.in_proj_",
		[3]string{}, [2]string{"ls_1.gamma", "ls_2.gamma"}}
	huggingfaceBlock = blockNames{"layer_norm1.", "layer_norm2.", "mlp.fc1.", "mlp.fc2.", "self_attn.out_proj.", "",
		[3]string{"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."}, [2]string{}}
	timmBlock = blockNames{"norm1.", "norm2.", "mlp.fc1.", "mlp.fc2.", "attn.proj.", "attn.qkv.",
		[3]string{}, [2]string{"ls1.gamma", "ls2.gamma"}}
	// the norms of a BERT follow the sums
	bertBlock = blockNames{"attention.output.LayerNorm.", "output.LayerNorm.", "intermediate.dense.", "output.dense.",
		"attention.output.dense.", "",
		[3]string{"attention.self.query.", "attention.self.key.", "attention.self.value."}, [2]string{}}
)

// openaiScheme returns the names of OpenAI's CLIP and of OpenCLIP. OpenCLIP's "custom text" models put text. before the
// names of the text tower, and may store its projection as a Linear.
func openaiScheme(text string, linearText bool) scheme {
	scheme := scheme{
		tokens: text + "token_embedding.weight", textPositions: text + "positional_embedding", textFinal: text +
			"ln_final.",
		textProjection: text + "text_projection", textBlocks: text + "transformer.resblocks.",
		visionBlocks: "visual.transformer.resblocks.", patches: "visual.conv1.weight", class: "visual.class_embedding",
		visionPositions: "visual.positional_embedding", visionPre: "visual.ln_pre.", visionPost: "visual.ln_post.",
		visionProjection: "visual.proj", text: openaiBlock, vision: openaiBlock,
		towers: []string{"visual.", "transformer.", "text."},
	}

	if linearText {
		scheme.textProjection += ".weight"
	}

	return scheme
}

var huggingfaceScheme = scheme{
	huggingface: true, tokens: "text_model.embeddings.token_embedding.weight",
	textPositions: "text_model.embeddings.position_embedding.weight", textFinal: "text_model.final_layer_norm.",
	textProjection: "text_projection.weight", textBlocks: "text_model.encoder.layers.",
	visionBlocks: "vision_model.encoder.layers.", patches: "vision_model.embeddings.patch_embedding.weight",
	class:           "vision_model.embeddings.class_embedding",
	visionPositions: "vision_model.embeddings.position_embedding.weight",
	visionPre:       "vision_model.pre_layrnorm.", visionPost: "vision_model.post_layernorm.",
	visionProjection: "visual_projection.weight", text: huggingfaceBlock, vision: huggingfaceBlock,
	linearProjection: true, towers: []string{"vision_model.", "text_model."},
}

// siglipScheme is the scheme of transformers' SiglipModel: Hugging Face's, with heads and no projections.
var siglipScheme = func() scheme {
	s := huggingfaceScheme
	s.siglip, s.textProjection = true, "text_model.head.weight"
	return s
}()

// chineseScheme is the scheme of transformers' ChineseCLIPModel: Hugging Face's, with a BERT as text tower.
var chineseScheme = huggingfaceScheme.withBERT("text_model.")

// wordEmbeddings ends the name of the token embedding of a BERT.
const wordEmbeddings = "embeddings.word_embeddings.weight"

// withBERT returns the scheme with the text tower replaced by a BERT with a prefix.
func (s scheme) withBERT(prefix string) scheme {
	s.bert, s.text, s.textBlocks = true, bertBlock, prefix+"encoder.layer."
	s.tokens, s.textPositions = prefix+wordEmbeddings, prefix+"embeddings.position_embeddings.weight"
	return s
}

// textEmbeddings returns the prefix of the embeddings of a BERT.
func (s scheme) textEmbeddings() string {
	return strings.TrimSuffix(s.tokens, "word_embeddings.weight")
}

// unsupported lists parts of tensor names and the architectures that they indicate.
var unsupported = []struct{ part, what string }{
	{"visual.attn_pool.", "attention pooling (CoCa)"},
	{"text_decoder.", "a text decoder (CoCa)"},
	{"visual.head.mlp.", "an image tower of timm with a projection of two layers (timm_proj mlp)"},
	{bertInside + "encoder.relative_attention_bias.", "a text tower with relative positions"},
}

// otherwise is the next step for unsupported towers.
const otherwise = "export the model from PyTorch with python -m promptfed.backbone LIBRARY:NAME --out DIR " +
	"(docs/dropin.md)"

const expected = "want a CLIP with a ViT or ResNet image tower (OpenAI's names visual.conv1.weight and " +
	"token_embedding.weight, " +
	"or Hugging Face's vision_model. and text_model., of CLIP, SigLIP or Chinese-CLIP)"

// schemeOf returns the naming scheme of a checkpoint, or an error that says why it is not a CLIP.
func schemeOf(ckpt *Checkpoint) (scheme, error) {
	names := ckpt.Names()
	if err := checkInside(ckpt, names); err != nil {
		return scheme{}, err
	}

	kind, _ := ckpt.config["model_type"].(string)
	prefix, resnet := resnetPrefix(ckpt)
	if kind != "" && ckpt.format == HuggingFace && !resnet && !slices.Contains(modelTypes, kind) {
		return scheme{}, fmt.Errorf("%s: model_type %q is not supported, only %s: %s", huggingfaceConfig,
			oneline.Short(kind), strings.Join(modelTypes, ", "), otherwise)
	}

	for _, f := range unsupported {
		for _, n := range names {
			if strings.Contains(n, f.part) {
				return scheme{}, fmt.Errorf("tensor %q belongs to %s, which is not supported: %s", n, f.what, otherwise)
			}
		}
	}

	bert := ckpt.Has(chineseScheme.tokens)
	hfText, hfVision := ckpt.Has(huggingfaceScheme.tokens) || bert, ckpt.Has(huggingfaceScheme.patches)
	resnet = resnet && !hfVision
	vision := ckpt.Has("visual.conv1.weight") || resnet || ckpt.Has(trunk+"patch_embed.proj.weight")
	text, custom := ckpt.Has(TokenEmbedding), ckpt.Has("text."+TokenEmbedding) || ckpt.Has(bertInside+wordEmbeddings)
	var chosen scheme
	switch {
	case bert && hfVision:
		chosen = chineseScheme
	case hfText && hfVision && ckpt.Has("vision_model.head.probe"):
		chosen = siglipScheme
	case hfText && (hfVision || resnet):
		chosen = huggingfaceScheme
	case vision && text:
		chosen = openaiScheme("", ckpt.Has("text_projection.weight")).insideOpenCLIP(ckpt)
	case vision && custom:
		chosen = openaiScheme("text.", ckpt.Has("text.text_projection.weight")).insideOpenCLIP(ckpt)
	case hfText || text || custom:
		return scheme{}, fmt.Errorf("the checkpoint has a text tower but no image tower; %s", expected)
	case hfVision || vision:
		return scheme{}, fmt.Errorf("the checkpoint has an image tower but no text tower; %s", expected)
	default:
		return scheme{}, fmt.Errorf("not a CLIP: its tensors are named like %s; %s", sample(names), expected)
	}

	if ckpt.format == HuggingFace && !resnet && kind != "" &&
		((kind == "siglip") != chosen.siglip || (kind == "chinese_clip") != chosen.bert) {
		return chosen, fmt.Errorf("config.json says model_type %q, but its tensors have other names; %s", kind,
			expected)
	}

	if resnet {
		chosen = chosen.withResNet(ckpt, prefix)
	}

	return chosen, nil
}

// withResNet replaces the image tower by a ResNet with a prefix. Its projection is part of the attention pooling, and
// the projection of the text tower may be stored either way.
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
		quoted = append(quoted, fmt.Sprintf("%q", oneline.Short(n)))
	}

	return strings.Join(quoted, ", ")
}
