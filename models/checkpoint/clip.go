package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"promptfed/models/clip"
)

// Weights are the tensors of a CLIP, unread. Their names, shapes and order are the same for all naming schemes.
type Weights struct {
	Arch       Arch
	Tensors    []Tensor // of both towers
	LogitScale *Handle  // the natural logarithm of Arch.LogitScale
	LogitBias  *Handle  // of a sigmoid loss, or nil
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

	f := &finder{ckpt: ckpt, used: map[string]bool{}}
	weights := &Weights{LogitScale: f.find("logit_scale")}
	arch := &weights.Arch
	if ckpt.Has("logit_bias") {
		weights.LogitBias = f.find("logit_bias")
	}

	f.text(scheme, arch)
	if scheme.resnet {
		f.resnet(scheme.visual, arch)
	} else {
		f.vision(scheme, arch)
	}

	if f.err != nil {
		return nil, f.err
	}

	weights.Tensors = f.found
	if err := settings(ckpt, scheme, arch); err != nil {
		return nil, err
	}

	if err := f.leftovers(scheme, arch); err != nil {
		return nil, err
	}

	scale, err := weights.LogitScale.Number()
	if err == nil && weights.LogitBias != nil {
		arch.LogitBias, err = weights.LogitBias.Number()
	}

	if err != nil {
		return nil, err
	}

	arch.LogitScale = math.Exp(scale)
	if err := clip.CheckScale(arch.LogitScale, 0); err != nil {
		return nil, fmt.Errorf("tensor %q holds %g, the logarithm of the scale: %w", weights.LogitScale.Name, scale,
			err)
	}

	if err := clip.CheckScale(arch.LogitScale, arch.LogitBias); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", weights.LogitBias.Name, err)
	}

	return weights, nil
}

func (f *finder) text(s scheme, arch *Arch) {
	text := &arch.Text
	tokens, positions := f.find(s.tokens, -1, -1), f.find(s.textPositions, -1, -1)
	if f.err != nil {
		return
	}

	arch.Vocab, text.Width = tokens.Shape[0], tokens.Shape[1]
	f.shape(positions, -1, text.Width)
	norm, names := "ln_final.", s.textFinal
	if s.bert {
		norm, names = "ln_pre.", s.textEmbeddings()+"LayerNorm."
		positions = f.bert(s, arch, positions)
	}

	f.put(TokenEmbedding, tokens)
	f.put("positional_embedding", positions)
	text.Layers, text.MLP = f.blocks("", s.text, s.textBlocks, text.Width)
	f.pair(norm, names, text.Width)
	if text.Pooler = s.pooler; text.Pooler {
		f.pair("pooler.", strings.TrimSuffix(s.textEmbeddings(), "embeddings.")+"pooler.dense.", text.Width, text.Width)
	}

	if f.err != nil {
		return
	}

	text.Context = positions.Shape[0]
	from, projection := text.Width, s.textProjection
	if stem := strings.TrimSuffix(projection, "weight"); s.bert && f.ckpt.Has(stem+"0.weight") {
		if h := f.take("text_hidden.weight", stem+"0.weight", -1, text.Width); h != nil {
			text.Hidden = h.Shape[0]
		}
		from, projection = text.Hidden, stem+"2.weight"
	}

	if text.NoProjection = f.ckpt.format == OpenCLIP && !s.bert && !f.ckpt.Has(projection); text.NoProjection {
		text.EmbedDim = text.Width
	} else {
		text.EmbedDim, text.ProjectionBias = f.projection("text_projection", "text_projection.", projection,
			s.linearProjection, from, -1)
	}
}

// bert sets the properties of a BERT or RoBERTa, and returns its positions with the embedding of the only type of
// tokens. A RoBERTa, whose tokens have only one type, numbers its positions after the padding index, 1.
func (f *finder) bert(s scheme, a *Arch, positions *Handle) *Handle {
	arch := &a.Text
	arch.Bidirectional, arch.Masked, arch.PostNorm, arch.Pool = true, true, true, clip.FirstPool
	name := s.textEmbeddings() + "token_type_embeddings.weight"
	types := f.find(name, -1, arch.Width)
	if f.err != nil {
		return nil
	}

	first, n := 0, positions.Shape[0]
	if a.RoBERTa = types.Shape[0] == 1 && !s.huggingface; a.RoBERTa {
		first = 2
	}

	if s.context > 0 {
		n = min(n, first+s.context)
	}

	rows, err := positions.Rows(first, max(first, n))
	if err != nil || n <= first {
		f.fail("tensor %q has %d positions, want more", s.textPositions, n)
		return nil
	}

	return f.biased(rows, name, arch.Width, 0)
}

func (f *finder) vision(s scheme, arch *Arch) {
	v := &arch.Vision
	patches, positions := f.find(s.patches, -1, 3, -1, -1), f.rows(s.visionPositions, 0)
	if f.err != nil {
		return
	}

	v.Width, v.Patch, v.EmbedDim = patches.Shape[0], patches.Shape[3], arch.Text.EmbedDim
	f.shape(patches, v.Width, 3, v.Patch, v.Patch)
	class, what := 1, "one for the class and a square number of patches"
	if v.NoClass = s.siglip || s.trunk && !f.ckpt.Has(s.class); v.NoClass {
		class, what = 0, "a square number of patches"
	}

	n := positions.Shape[0] - class
	if v.Image = side(n) * v.Patch; v.Image == 0 {
		f.fail("tensor %q has %d positions, want %s", s.visionPositions, n+class, what)
		return
	}

	f.shape(positions, n+class, v.Width)
	if bias := strings.TrimSuffix(s.patches, "weight") + "bias"; s.siglip || s.trunk && f.ckpt.Has(bias) {
		positions = f.biased(positions, bias, v.Width, class)
	}

	f.put("visual.conv1.weight", patches)
	if !v.NoClass {
		if h := f.rows(s.class, v.Width); f.err == nil {
			f.put("visual.class_embedding", h.reshaped(v.Width))
		}
	}

	f.put("visual.positional_embedding", positions)
	if v.NoPreNorm = s.siglip || f.ckpt.format == OpenCLIP && !f.ckpt.Has(s.visionPre+"weight"); !v.NoPreNorm {
		f.pair("visual.ln_pre.", s.visionPre, v.Width)
	}

	v.Layers, v.MLP = f.blocks("visual.", s.vision, s.visionBlocks, v.Width)
	f.pair("visual.ln_post.", s.visionPost, v.Width)
	v.NormPooled = strings.HasSuffix(s.visionPost, ".fc_norm.")
	if v.NoProjection = s.siglip || s.trunk && !f.ckpt.Has(s.visionProjection); !v.NoProjection {
		_, v.ProjectionBias = f.projection("visual.proj", "visual_projection.", s.visionProjection,
			s.linearProjection, v.Width, v.EmbedDim)
	} else if f.err == nil && v.EmbedDim != v.Width {
		f.fail("features of texts have %d numbers, those of images %d", v.EmbedDim, v.Width)
	}

	if s.siglip {
		arch.Text.Bidirectional, arch.Text.Pool = true, clip.LastPool
	}

	if s.siglip || s.trunk && f.ckpt.Has(trunk+"attn_pool.latent") {
		v.Pool = clip.AttentionPool
		f.attentionPool(s.trunk, v.Width, v.Units())
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
