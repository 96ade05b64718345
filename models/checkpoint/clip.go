package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"promptfed/models/clip"
)

// Weights are the tensors of a CLIP, unread, in one structure for all naming schemes.
type Weights struct {
	Arch       Arch
	Text       TextTower
	Vision     VisionTower // zero for a ResNet
	ResNet     ResNetTower // zero for a ViT
	LogitScale *Handle     // the natural logarithm of Arch.LogitScale
	LogitBias  *Handle     // of a sigmoid loss, or nil
}

// Linear maps rows x to x W^T + Bias. Weight is W [out,in], or its transpose [in,out] if Transposed is set.
type Linear struct {
	Weight, Bias *Handle // Bias [out], or nil
	Transposed   bool
}

// Norm is a layer norm: Weight and Bias are [width].
type Norm struct{ Weight, Bias *Handle }

// Attention is multi-head self-attention. Q, K, V and Out are [width,width]. If a checkpoint stores the first three in
// one tensor [3*width,width], they are parts of it, and Fused is that tensor.
type Attention struct {
	Q, K, V, Out Linear
	fused        *Linear
}

// Fused returns the projection to [Q K V], [3*width,width]: the stored tensor, or a concatenation on Load.
func (a Attention) Fused() Linear {
	if a.fused != nil {
		return *a.fused
	}
	return Linear{Weight: concat("qkv of "+a.Q.Weight.Name, a.Q.Weight, a.K.Weight, a.V.Weight),
		Bias: concat("qkv of "+a.Q.Bias.Name, a.Q.Bias, a.K.Bias, a.V.Bias)}
}

// StoredFused reports whether Fused is one tensor of the checkpoint.
func (a Attention) StoredFused() bool { return a.fused != nil }

// Block is a pre-norm residual block: x += attention(Norm1(x)); x += Down(activation(Up(Norm2(x)))).
type Block struct {
	Norm1     Norm
	Attention Attention
	Norm2     Norm
	Up, Down  Linear // [mlp,width], [width,mlp]
}

// TextTower holds Tokens [vocab,width], Positions [context,width] and the rest of the text tower.
type TextTower struct {
	Tokens, Positions *Handle
	Blocks            []Block
	Pre               Norm    // of a BERT: after the embeddings
	Final             Norm    // absent in a BERT
	Pooler            *Linear // of a BERT whose features pass through a layer and tanh: [width,width]
	Hidden            *Linear // before Projection, with a GELU between them and without bias, or nil
	Projection        Linear  // to the space of image and text features, if the architecture has it
}

// VisionTower holds Patches [width,3,patch,patch] (a convolution without bias), Class [width], Positions
// [grid*grid+1,width] and the rest of the image tower. The bias of a convolution is part of the positions. Class, Pre
// and Projection are absent if the architecture says so.
type VisionTower struct {
	Patches, Class, Positions *Handle
	Pre                       Norm
	Blocks                    []Block
	Post                      Norm
	Projection                Linear // to the space of image and text features
	Pool                      *AttentionPool
}

// AttentionPool reads the features of an image with one query, Probe [1,1,width] (Zhai et al., SigLIP, ICCV 2023).
type AttentionPool struct {
	Probe     *Handle
	Attention Attention
	Norm      Norm
	Up, Down  Linear
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

func find(c *Checkpoint) (*Weights, error) {
	s, err := schemeOf(c)
	if err != nil {
		return nil, err
	}
	f := &finder{c: c, used: map[string]bool{}}
	w := &Weights{}
	a := &w.Arch
	w.LogitScale = f.find("logit_scale")
	if c.Has("logit_bias") {
		w.LogitBias = f.find("logit_bias")
	}
	w.readText(f, s)
	if s.resnet {
		w.readResNet(f, s.visual)
	} else {
		w.readVision(f, s)
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := settings(c, s, a); err != nil {
		return nil, err
	}
	if err := f.leftovers(s, a); err != nil {
		return nil, err
	}
	scale, err := w.LogitScale.Number()
	if err == nil && w.LogitBias != nil {
		a.LogitBias, err = w.LogitBias.Number()
	}
	if err != nil {
		return nil, err
	}
	a.LogitScale = math.Exp(scale)
	if err := clip.CheckScale(a.LogitScale, 0); err != nil {
		return nil, fmt.Errorf("tensor %q holds %g, the logarithm of the scale: %w", w.LogitScale.Name, scale, err)
	}
	if err := clip.CheckScale(a.LogitScale, a.LogitBias); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", w.LogitBias.Name, err)
	}
	return w, nil
}

func (w *Weights) readText(f *finder, s scheme) {
	a := &w.Arch
	w.Text.Tokens = f.find(s.tokens, -1, -1)
	w.Text.Positions = f.find(s.textPositions, -1, -1)
	if f.err != nil {
		return
	}
	a.Vocab, a.Text.Width = w.Text.Tokens.Shape[0], w.Text.Tokens.Shape[1]
	width := a.Text.Width
	f.shape(w.Text.Positions, -1, width)
	if s.bert {
		w.readBERT(f, s)
	} else {
		w.Text.Final = f.norm(s.textFinal, width)
	}
	if f.err != nil {
		return
	}
	a.Context = w.Text.Positions.Shape[0]
	from := width
	if hidden := strings.TrimSuffix(s.textProjection, "weight") + "0.weight"; s.bert && f.c.Has(hidden) {
		h := f.find(hidden, -1, width)
		if f.err != nil {
			return
		}
		w.Text.Hidden, a.TextHidden = &Linear{Weight: h}, h.Shape[0]
		from, s.textProjection = a.TextHidden, strings.TrimSuffix(s.textProjection, "weight")+"2.weight"
	}
	if a.NoTextProjection = f.c.format == OpenCLIP && !s.bert && !f.c.Has(s.textProjection); a.NoTextProjection {
		a.EmbedDim = width
	} else {
		w.Text.Projection = f.projection(s.textProjection, s.linearProjection, from, 0)
	}
	if bias := strings.TrimSuffix(s.textProjection, "weight") + "bias"; f.err == nil && f.c.Has(bias) {
		w.Text.Projection.Bias = f.find(bias, projected(w.Text.Projection))
	}
	if f.err != nil {
		return
	}
	if !a.NoTextProjection {
		a.EmbedDim = projected(w.Text.Projection)
	}
	if s.bert {
		w.Text.Blocks, a.Text.MLP = f.bertBlocks(s.textBlocks, width)
	} else {
		w.Text.Blocks, a.Text.MLP = f.blocks(s.text, s.textBlocks, width)
	}
	a.Text.Layers = len(w.Text.Blocks)
}

// readBERT reads the parts of a BERT or RoBERTa outside its blocks. A RoBERTa, whose tokens have only one type, numbers
// its positions after the padding index, 1.
func (w *Weights) readBERT(f *finder, s scheme) {
	a, prefix := &w.Arch, strings.TrimSuffix(s.tokens, "word_embeddings.weight")
	a.Bidirectional, a.Masked, a.PostNorm, a.TextPool = true, true, true, clip.FirstPool
	types := f.find(prefix+"token_type_embeddings.weight", -1, a.Text.Width)
	if f.err != nil {
		return
	}
	first, n := 0, w.Text.Positions.Shape[0]
	if a.RoBERTa = types.Shape[0] == 1 && !s.huggingface; a.RoBERTa {
		first = 2
	}
	if s.context > 0 {
		n = min(n, first+s.context)
	}
	rows, err := w.Text.Positions.Rows(first, max(first, n))
	if err != nil || n <= first {
		f.fail("tensor %q has %d positions, want more", s.textPositions, n)
		return
	}
	w.Text.Positions = f.biased(rows, prefix+"token_type_embeddings.weight", a.Text.Width, 0)
	w.Text.Pre = f.norm(prefix+"LayerNorm.", a.Text.Width)
	if dense := strings.TrimSuffix(prefix, "embeddings.") + "pooler.dense."; s.pooler {
		w.Text.Pooler = new(f.linear(dense, a.Text.Width, a.Text.Width))
	}
}

func (w *Weights) readVision(f *finder, s scheme) {
	a, v := &w.Arch, &w.Vision
	a.Kind = ViT
	v.Patches = f.find(s.patches, -1, 3, -1, -1)
	v.Positions = f.rows(s.visionPositions, 0)
	if f.err != nil {
		return
	}
	width := v.Patches.Shape[0]
	a.Vision.Width, a.Patch = width, v.Patches.Shape[3]
	f.shape(v.Patches, width, 3, a.Patch, a.Patch)
	class, what := 1, "one for the class and a square number of patches"
	if a.NoClass = s.siglip || s.trunk && !f.c.Has(s.class); a.NoClass {
		class, what = 0, "a square number of patches"
	}
	n := v.Positions.Shape[0] - class
	grid := int(math.Round(math.Sqrt(float64(max(n, 0)))))
	if grid == 0 || grid*grid != n || a.Patch == 0 {
		f.fail("tensor %q has %d positions, want %s", s.visionPositions, n+class, what)
		return
	}
	a.ImageSize = grid * a.Patch // unless a configuration states a margin
	f.shape(v.Positions, n+class, width)
	v.Post = f.norm(s.visionPost, width)
	a.NormPooled = strings.HasSuffix(s.visionPost, ".fc_norm.")
	if !a.NoClass {
		if v.Class = f.rows(s.class, width); f.err == nil {
			v.Class = v.Class.reshaped(width)
		}
	}
	if a.NoPreNorm = s.siglip || f.c.format == OpenCLIP && !f.c.Has(s.visionPre+"weight"); !a.NoPreNorm {
		v.Pre = f.norm(s.visionPre, width)
	}
	if bias := strings.TrimSuffix(s.patches, "weight") + "bias"; s.siglip || s.trunk && f.c.Has(bias) {
		v.Positions = f.biased(v.Positions, bias, width, class)
	}
	pool := s.siglip || s.trunk && f.c.Has(trunk+"attn_pool.latent")
	if a.NoProjection = s.siglip || s.trunk && !f.c.Has(s.visionProjection); !a.NoProjection {
		v.Projection = f.projection(s.visionProjection, s.linearProjection, width, a.EmbedDim)
		if bias := strings.TrimSuffix(s.visionProjection, "weight") + "bias"; f.err == nil && f.c.Has(bias) {
			v.Projection.Bias = f.find(bias, a.EmbedDim)
		}
	} else if f.err == nil && a.EmbedDim != width {
		f.fail("features of texts have %d numbers, those of images %d", a.EmbedDim, width)
	}
	if s.siglip {
		a.Bidirectional, a.TextPool = true, clip.LastPool
	}
	v.Blocks, a.Vision.MLP = f.blocks(s.vision, s.visionBlocks, width)
	a.Vision.Layers = len(v.Blocks)
	if pool && f.err == nil {
		a.VisionPool, v.Pool = clip.AttentionPool, f.attentionPool(s.trunk, width, a.Vision.MLP)
	}
}

func projected(l Linear) int {
	if l.Transposed {
		return l.Weight.Shape[1]
	}
	return l.Weight.Shape[0]
}
