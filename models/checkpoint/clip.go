package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"promptfed/models/clip"
)

// Weights are the tensors of a CLIP, unread. Their names, shapes and order are the same for all naming schemes.
type Weights struct {
	Arch    Arch
	Tensors []Tensor // of both towers
}

// TokenEmbedding is the name of the token embedding [vocabulary,width].
const TokenEmbedding = "token_embedding.weight"

// Tensor is a tensor with a name of clip.Weights, or TokenEmbedding. The bias of a convolution to patches is part of
// the positions; layer scale is part of the linear layer before it; the batch normalisations of a ResNet are folded
// into its convolutions.
type Tensor struct {
	Name string
	*Handle
}

// Fused returns the tensors with the projections of queries, keys and values as one tensor, which saves matrix
// products. Separately stored ones are concatenated on Load.
func (w *Weights) Fused() []Tensor {
	var out []Tensor
	for i := 0; i < len(w.Tensors); i++ {
		stem, ok := strings.CutSuffix(w.Tensors[i].Name, "attn.q_proj.weight")
		if !ok {
			out = append(out, w.Tensors[i])
			continue
		}
		part := w.Tensors[i : i+6] // weight and bias of each
		out = append(out, Tensor{stem + "attn.in_proj_weight", concat(part[0].Handle, part[2].Handle, part[4].Handle)},
			Tensor{stem + "attn.in_proj_bias", concat(part[1].Handle, part[3].Handle, part[5].Handle)})
		i += 5
	}

	return out
}

// CLIP finds every tensor of a CLIP in a checkpoint with OpenAI's, OpenCLIP's or Hugging Face's names, and checks every
// shape. transformers has no ResNet image tower, so a ResNet has OpenAI's names in every format, after any prefix. For
// another architecture, the error says what was expected.
func CLIP(c *Checkpoint) (*Weights, error) {
	w, err := find(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return w, nil
}

func find(ckpt *Checkpoint) (*Weights, error) {
	scheme, err := schemeOf(ckpt)
	if err != nil {
		return nil, err
	}

	finder := &finder{ckpt: ckpt, used: map[string]bool{}}
	weights := &Weights{}
	arch, logScale := &weights.Arch, finder.find("logit_scale")
	var bias *Handle // of a sigmoid loss
	if ckpt.Has("logit_bias") {
		bias = finder.find("logit_bias")
	}

	finder.text(scheme, arch)
	if scheme.resnet {
		finder.resnet(scheme.visual, arch)
	} else {
		finder.vision(scheme, arch)
	}

	if finder.err != nil {
		return nil, finder.err
	}

	weights.Tensors = finder.found
	if err := settings(ckpt, scheme, arch); err != nil {
		return nil, err
	}

	if err := finder.leftovers(scheme, arch); err != nil {
		return nil, err
	}

	scale, err := logScale.Number()
	if err == nil && bias != nil {
		arch.LogitBias, err = bias.Number()
	}

	if err != nil {
		return nil, err
	}

	arch.LogitScale = math.Exp(scale)
	if err := clip.CheckScale(arch.LogitScale, 0); err != nil {
		return nil, fmt.Errorf("tensor %q holds %g, the logarithm of the scale: %w", logScale.Name, scale, err)
	}

	if err := clip.CheckScale(arch.LogitScale, arch.LogitBias); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", bias.Name, err)
	}

	return weights, nil
}

func (f *finder) text(scheme scheme, arch *Arch) {
	text := &arch.Text
	tokens, positions := f.find(scheme.tokens, -1, -1), f.find(scheme.textPositions, -1, -1)
	if f.err != nil {
		return
	}

	arch.Vocab, text.Width = tokens.Shape[0], tokens.Shape[1]
	f.shape(positions, -1, text.Width)
	norm, names := "ln_final.", scheme.textFinal
	if scheme.bert {
		norm, names = "ln_pre.", scheme.textEmbeddings()+"LayerNorm."
		positions = f.bert(scheme, arch, positions)
	}

	f.put(TokenEmbedding, tokens)
	f.put("positional_embedding", positions)
	text.Layers, text.MLP = f.blocks("", scheme.text, scheme.textBlocks, text.Width)
	f.pair(norm, names, text.Width)
	if text.Pooler = scheme.pooler; text.Pooler {
		f.pair("pooler.", strings.TrimSuffix(scheme.textEmbeddings(), "embeddings.")+"pooler.dense.", text.Width,
			text.Width)
	}

	if f.err != nil {
		return
	}

	text.Context = positions.Shape[0]
	from, projection := text.Width, scheme.textProjection
	if stem := strings.TrimSuffix(projection, "weight"); scheme.bert && f.ckpt.Has(stem+"0.weight") {
		if h := f.take("text_hidden.weight", stem+"0.weight", -1, text.Width); h != nil {
			text.Hidden = h.Shape[0]
		}
		from, projection = text.Hidden, stem+"2.weight"
	}

	if text.NoProjection = f.ckpt.format == OpenCLIP && !scheme.bert && !f.ckpt.Has(projection); text.NoProjection {
		text.EmbedDim = text.Width
	} else {
		text.EmbedDim, text.ProjectionBias = f.projection("text_projection", "text_projection.", projection,
			scheme.linearProjection, from, -1)
	}
}

// bert sets the properties of a BERT or RoBERTa, and returns its positions with the embedding of the only type of
// tokens. A RoBERTa, whose tokens have only one type, numbers its positions after the padding index, 1.
func (f *finder) bert(scheme scheme, a *Arch, positions *Handle) *Handle {
	arch := &a.Text
	arch.Bidirectional, arch.Masked, arch.PostNorm, arch.Pool = true, true, true, clip.FirstPool
	name := scheme.textEmbeddings() + "token_type_embeddings.weight"
	types := f.find(name, -1, arch.Width)
	if f.err != nil {
		return nil
	}

	first, n := 0, positions.Shape[0]
	if a.RoBERTa = types.Shape[0] == 1 && !scheme.huggingface; a.RoBERTa {
		first = 2
	}

	if scheme.context > 0 {
		n = min(n, first+scheme.context)
	}

	rows, err := positions.Rows(first, max(first, n))
	if err != nil || n <= first {
		f.fail("tensor %q has %d positions, want more", scheme.textPositions, n)
		return nil
	}

	return f.biased(rows, name, arch.Width, 0)
}

func (f *finder) vision(scheme scheme, arch *Arch) {
	vision := &arch.Vision
	patches, positions := f.find(scheme.patches, -1, 3, -1, -1), f.rows(scheme.visionPositions, 0)
	if f.err != nil {
		return
	}

	vision.Width, vision.Patch, vision.EmbedDim = patches.Shape[0], patches.Shape[3], arch.Text.EmbedDim
	f.shape(patches, vision.Width, 3, vision.Patch, vision.Patch)
	class, what := 1, "one for the class and a square number of patches"
	if vision.NoClass = scheme.siglip || scheme.trunk && !f.ckpt.Has(scheme.class); vision.NoClass {
		class, what = 0, "a square number of patches"
	}

	n := positions.Shape[0] - class
	if vision.Image = side(n) * vision.Patch; vision.Image == 0 {
		f.fail("tensor %q has %d positions, want %s", scheme.visionPositions, n+class, what)
		return
	}

	f.shape(positions, n+class, vision.Width)
	if bias := strings.TrimSuffix(scheme.patches, "weight") + "bias"; scheme.siglip || scheme.trunk &&
		f.ckpt.Has(bias) {
		positions = f.biased(positions, bias, vision.Width, class)
	}

	f.put("visual.conv1.weight", patches)
	if !vision.NoClass {
		if h := f.rows(scheme.class, vision.Width); f.err == nil {
			f.put("visual.class_embedding", h.reshaped(vision.Width))
		}
	}

	f.put("visual.positional_embedding", positions)
	if vision.NoPreNorm = scheme.siglip || f.ckpt.format == OpenCLIP &&
		!f.ckpt.Has(scheme.visionPre+"weight"); !vision.NoPreNorm {
		f.pair("visual.ln_pre.", scheme.visionPre, vision.Width)
	}

	vision.Layers, vision.MLP = f.blocks("visual.", scheme.vision, scheme.visionBlocks, vision.Width)
	f.pair("visual.ln_post.", scheme.visionPost, vision.Width)
	vision.NormPooled = strings.HasSuffix(scheme.visionPost, ".fc_norm.")
	if vision.NoProjection = scheme.siglip || scheme.trunk &&
		!f.ckpt.Has(scheme.visionProjection); !vision.NoProjection {
		_, vision.ProjectionBias = f.projection("visual.proj", "visual_projection.", scheme.visionProjection,
			scheme.linearProjection, vision.Width, vision.EmbedDim)
	} else if f.err == nil && vision.EmbedDim != vision.Width {
		f.fail("features of texts have %d numbers, those of images %d", vision.EmbedDim, vision.Width)
	}

	if scheme.siglip {
		arch.Text.Bidirectional, arch.Text.Pool = true, clip.LastPool
	}

	if scheme.siglip || scheme.trunk && f.ckpt.Has(trunk+"attn_pool.latent") {
		vision.Pool = clip.AttentionPool
		f.attentionPool(scheme.trunk, vision.Width, vision.Units())
	}
}

// side returns the side of a square of n cells, or 0 if there is none.
func side(n int) int {
	if s := int(math.Round(math.Sqrt(float64(max(n, 0))))); s*s == n {
		return s
	}
	return 0
}

// attentionPool reads the attention pooling (Zhai et al., SigLIP, ICCV 2023) of transformers, or that of timm.
func (f *finder) attentionPool(timm bool, width, mlp int) {
	const to = "visual.attn_pool."
	from, probe, norm, out := "vision_model.head.", "probe", "layernorm.", "attention.out_proj."
	if timm {
		from, probe, norm, out = trunk+"attn_pool.", "latent", "norm.", "proj."
	}

	f.take(to+"probe", from+probe, 1, 1, width)
	if timm {
		q, kv := f.find(from+"q.weight", width, width), f.find(from+"kv.weight", 2*width, width)
		qBias, kvBias := f.find(from+"q.bias", width), f.find(from+"kv.bias", 2*width)
		if f.err != nil {
			return
		}
		f.put(to+"attn.in_proj_weight", concat(q, kv))
		f.put(to+"attn.in_proj_bias", concat(qBias, kvBias))
	} else {
		f.pair(to+"attn.in_proj_", from+"attention.in_proj_", 3*width, width)
	}

	f.pair(to+"attn.out_proj.", from+out, width, width)
	f.pair(to+"ln_2.", from+norm, width)
	f.pair(to+"mlp.c_fc.", from+"mlp.fc1.", mlp, width)
	f.pair(to+"mlp.c_proj.", from+"mlp.fc2.", width, mlp)
}
