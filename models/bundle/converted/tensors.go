package converted

import (
	"fmt"

	"promptfed/models/checkpoint"
)

// tokensName is OpenAI's name of the token embedding.
const tokensName = "token_embedding.weight"

// collect lists the tensors of both towers with the names that clip.Weights uses. If fuse is set, separately stored
// query, key and value become one tensor, which saves a matrix product per block. The batch normalisations of a ResNet
// are folded into its convolutions.
func collect(w *checkpoint.Weights, fuse bool) []item {
	var out []item
	add := func(name string, h *checkpoint.Handle) { out = append(out, item{name, h}) }
	linear := func(name string, l checkpoint.Linear) {
		add(name+"weight", l.Weight)
		add(name+"bias", l.Bias)
	}
	norm := func(name string, n checkpoint.Norm) {
		add(name+".weight", n.Weight)
		add(name+".bias", n.Bias)
	}
	blocks := func(prefix string, list []checkpoint.Block) {
		for i, b := range list {
			p := fmt.Sprintf("%stransformer.resblocks.%d.", prefix, i)
			norm(p+"ln_1", b.Norm1)
			if fuse || b.Attention.StoredFused() {
				linear(p+"attn.in_proj_", b.Attention.Fused())
			} else {
				linear(p+"attn.q_proj.", b.Attention.Q)
				linear(p+"attn.k_proj.", b.Attention.K)
				linear(p+"attn.v_proj.", b.Attention.V)
			}
			linear(p+"attn.out_proj.", b.Attention.Out)
			norm(p+"ln_2", b.Norm2)
			linear(p+"mlp.c_fc.", b.Up)
			linear(p+"mlp.c_proj.", b.Down)
		}
	}
	projection := func(plain, transposed string, l checkpoint.Linear) {
		if l.Transposed {
			add(plain, l.Weight)
		} else {
			add(transposed, l.Weight)
		}
	}
	add(tokensName, w.Text.Tokens)
	add("positional_embedding", w.Text.Positions)
	blocks("", w.Text.Blocks)
	if w.Arch.PostNorm {
		norm("ln_pre", w.Text.Pre)
	} else {
		norm("ln_final", w.Text.Final)
	}
	if w.Text.Pooler != nil {
		linear("pooler.", *w.Text.Pooler)
	}
	if w.Text.Hidden != nil {
		add("text_hidden.weight", w.Text.Hidden.Weight)
	}
	if !w.Arch.NoTextProjection {
		projection("text_projection", "text_projection.weight", w.Text.Projection)
	}
	if bias := w.Text.Projection.Bias; bias != nil {
		add("text_projection.bias", bias)
	}
	if w.Arch.Kind == checkpoint.ResNet {
		for _, c := range w.ResNet.Convolutions {
			weight, bias := c.Folded()
			add(c.Name+".weight", weight)
			add(c.Name+".bias", bias)
		}
		add("visual.attnpool.positional_embedding", w.ResNet.Positions)
		linear("visual.attnpool.q_proj.", w.ResNet.Q)
		linear("visual.attnpool.k_proj.", w.ResNet.K)
		linear("visual.attnpool.v_proj.", w.ResNet.V)
		linear("visual.attnpool.c_proj.", w.ResNet.Out)
		return out
	}
	add("visual.conv1.weight", w.Vision.Patches)
	if !w.Arch.NoClass {
		add("visual.class_embedding", w.Vision.Class)
	}
	add("visual.positional_embedding", w.Vision.Positions)
	if !w.Arch.NoPreNorm {
		norm("visual.ln_pre", w.Vision.Pre)
	}
	blocks("visual.", w.Vision.Blocks)
	norm("visual.ln_post", w.Vision.Post)
	if !w.Arch.NoProjection {
		projection("visual.proj", "visual_projection.weight", w.Vision.Projection)
		if bias := w.Vision.Projection.Bias; bias != nil {
			add("visual_projection.bias", bias)
		}
	}
	if p := w.Vision.Pool; p != nil {
		add("visual.attn_pool.probe", p.Probe)
		linear("visual.attn_pool.attn.in_proj_", p.Attention.Fused())
		linear("visual.attn_pool.attn.out_proj.", p.Attention.Out)
		norm("visual.attn_pool.ln_2", p.Norm)
		linear("visual.attn_pool.mlp.c_fc.", p.Up)
		linear("visual.attn_pool.mlp.c_proj.", p.Down)
	}
	return out
}
