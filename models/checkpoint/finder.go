package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/tensor"
)

// finder looks up tensors, checks their shapes, and keeps the first failure.
type finder struct {
	c    *Checkpoint
	used map[string]bool
	err  error
}

func (f *finder) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// find returns the float tensor called name. A size of -1 means any size; without a shape, any shape is accepted.
func (f *finder) find(name string, shape ...int) *Handle {
	if f.err != nil {
		return nil
	}
	h := f.c.handles[name]
	if h == nil {
		f.fail("tensor %q is missing; %s", name, expected)
		return nil
	}
	f.used[name] = true
	switch h.DType {
	case "F32", "F16", "BF16", "F64":
	default:
		f.fail("tensor %q is stored as %s; quantised weights are not supported, want F32, F16, BF16 or F64", name,
			h.DType)
		return nil
	}
	if len(shape) > 0 {
		f.shape(h, shape...)
	}
	return h
}

func (f *finder) shape(h *Handle, want ...int) {
	if f.err != nil {
		return
	}
	ok := len(h.Shape) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = want[i] == h.Shape[i] || want[i] == -1 && h.Shape[i] > 0
	}
	if !ok {
		text := strings.ReplaceAll(fmt.Sprint(want), "-1", "any")
		f.fail("tensor %q has shape %v, want %s", h.Name, h.Shape, text)
	}
}

func (f *finder) norm(prefix string, width int) Norm {
	return Norm{Weight: f.find(prefix+"weight", width), Bias: f.find(prefix+"bias", width)}
}

func (f *finder) linear(prefix string, out, in int) Linear {
	return Linear{Weight: f.find(prefix+"weight", out, in), Bias: f.find(prefix+"bias", out)}
}

// projection returns a map from width to embed (any, if embed is 0) without bias. A parameter [width,embed] is used as
// x @ P; a Linear is [embed,width].
func (f *finder) projection(name string, linear bool, width, embed int) Linear {
	if embed == 0 {
		embed = -1
	}
	if linear || strings.HasSuffix(name, ".weight") {
		return Linear{Weight: f.find(name, embed, width)}
	}
	return Linear{Weight: f.find(name, width, embed), Transposed: true}
}

// count returns the number of children 0, 1, ... under a prefix; a gap is a failure.
func (f *finder) count(prefix string) int {
	seen := map[int]bool{}
	for _, name := range f.c.Names() {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			digits, _, _ := strings.Cut(rest, ".")
			if i, err := strconv.Atoi(digits); err == nil && i >= 0 {
				seen[i] = true
			}
		}
	}
	for i := range len(seen) {
		if !seen[i] {
			f.fail("%s%d is missing among %d; the checkpoint is incomplete", prefix, i, len(seen))
			return 0
		}
	}
	return len(seen)
}

// blocks reads the residual blocks under a prefix and returns the width of their feed-forward layers.
func (f *finder) blocks(s blockNames, prefix string, width int) ([]Block, int) {
	n := f.count(prefix)
	if f.err != nil {
		return nil, 0
	}
	if n == 0 {
		f.fail("no blocks under %q; %s", prefix, expected)
		return nil, 0
	}
	up := f.find(prefix+"0."+s.up+"weight", -1, width)
	if f.err != nil {
		return nil, 0
	}
	mlp := up.Shape[0]
	out := make([]Block, n)
	for i := range out {
		p := fmt.Sprintf("%s%d.", prefix, i)
		out[i] = Block{Norm1: f.norm(p+s.norm1, width), Attention: f.attention(s, p, width), Norm2: f.norm(p+s.norm2,
			width),
			Up: f.linear(p+s.up, mlp, width), Down: f.linear(p+s.down, width, mlp)}
		for _, scale := range []struct {
			name string
			of   *Linear
		}{{p + s.scales[0], &out[i].Attention.Out}, {p + s.scales[1], &out[i].Down}} {
			if f.c.Has(scale.name) {
				*scale.of = f.scaled(*scale.of, scale.name, width)
			}
		}
		if f.err != nil {
			return nil, 0
		}
	}
	return out, mlp
}

// scaled returns a linear layer whose outputs are multiplied with a tensor (layer scale: Touvron et al., ICCV 2021) as
// one linear layer.
func (f *finder) scaled(l Linear, name string, width int) Linear {
	gamma := f.find(name, width)
	if f.err != nil {
		return l
	}
	scale := func(t *tensor.Tensor) error {
		by, err := finite(gamma)
		if err != nil {
			return err
		}
		s := make([]float64, width)
		for i, v := range by.Data {
			s[i] = float64(v)
		}
		scaleRows(t, s)
		return nil
	}
	return Linear{Weight: computed(l.Weight, scale), Bias: computed(l.Bias, scale)}
}

// biased adds the first row of a tensor [any,width] or [width] to the positions [n,width], except to the first ones.
func (f *finder) biased(positions *Handle, name string, width, first int) *Handle {
	bias := f.rows(name, width)
	if f.err != nil {
		return positions
	}
	return computed(positions, func(t *tensor.Tensor) error {
		b, err := finite(bias)
		if err != nil {
			return err
		}
		for i := first * width; i < len(t.Data); i++ {
			t.Data[i] += b.Data[i%width]
		}
		return nil
	})
}

// attentionPool reads the attention pooling of SigLIP in transformers, or that of timm.
func (f *finder) attentionPool(timm bool, width, mlp int) *AttentionPool {
	prefix, probe, norm, out := "vision_model.head.", "probe", "layernorm.", "attention.out_proj."
	if timm {
		prefix, probe, norm, out = trunk+"attn_pool.", "latent", "norm.", "proj."
	}
	p := &AttentionPool{Probe: f.find(prefix+probe, 1, 1, width), Norm: f.norm(prefix+norm, width),
		Up: f.linear(prefix+"mlp.fc1.", mlp, width), Down: f.linear(prefix+"mlp.fc2.", width, mlp)}
	if timm {
		p.Attention.Q = f.linear(prefix+"q.", width, width)
		f.split(prefix+"kv.", width, &p.Attention.K, &p.Attention.V)
	} else {
		p.Attention = f.fused(prefix+"attention.in_proj_", width)
	}
	p.Attention.Out = f.linear(prefix+out, width, width)
	return p
}

// bertBlocks reads the residual blocks of a BERT, whose norms follow the sums, and returns the width of their
// feed-forward layers.
func (f *finder) bertBlocks(prefix string, width int) ([]Block, int) {
	n := f.count(prefix)
	up := f.find(prefix+"0.intermediate.dense.weight", -1, width)
	if f.err != nil {
		return nil, 0
	}
	mlp, out := up.Shape[0], make([]Block, n)
	for i := range out {
		p := fmt.Sprintf("%s%d.", prefix, i)
		self := p + "attention.self."
		out[i] = Block{Norm1: f.norm(p+"attention.output.LayerNorm.", width),
			Attention: Attention{Q: f.linear(self+"query.", width, width), K: f.linear(self+"key.", width, width),
				V: f.linear(self+"value.", width, width), Out: f.linear(p+"attention.output.dense.", width, width)},
			Norm2: f.norm(p+"output.LayerNorm.", width), Up: f.linear(p+"intermediate.dense.", mlp, width),
			Down: f.linear(p+"output.dense.", width, mlp)}
		if f.err != nil {
			return nil, 0
		}
	}
	return out, mlp
}

func (f *finder) attention(s blockNames, prefix string, width int) Attention {
	if s.fused == "" {
		a := Attention{Out: f.linear(prefix+s.out, width, width)}
		a.Q = f.linear(prefix+"self_attn.q_proj.", width, width)
		a.K = f.linear(prefix+"self_attn.k_proj.", width, width)
		a.V = f.linear(prefix+"self_attn.v_proj.", width, width)
		return a
	}
	a := f.fused(prefix+s.fused, width)
	a.Out = f.linear(prefix+s.out, width, width)
	return a
}

// fused reads queries, keys and values that are stored as one tensor.
func (f *finder) fused(name string, width int) (a Attention) {
	in := f.split(name, width, &a.Q, &a.K, &a.V)
	a.fused = &in
	return a
}

// split reads linear layers of the same input that are stored as one tensor.
func (f *finder) split(name string, width int, parts ...*Linear) Linear {
	in := f.linear(name, len(parts)*width, width)
	for i, part := range parts {
		if f.err != nil {
			return in
		}
		var err error
		if part.Weight, err = in.Weight.Rows(i*width, (i+1)*width); err == nil {
			part.Bias, err = in.Bias.Rows(i*width, (i+1)*width)
		}
		if err != nil {
			f.fail("%w", err)
		}
	}
	return in
}

// rows returns a tensor as [n,width]; it may be stored with axes of size 1 in front, or without the first axis if n is
// 1.
func (f *finder) rows(name string, width int) *Handle {
	h := f.find(name)
	if f.err != nil {
		return nil
	}
	n := len(h.Shape)
	if n == 0 || h.Shape[n-1] != width && width > 0 || tensor.Size(h.Shape[:n-1]) != h.Shape[max(0, n-2)] && n > 1 ||
		tensor.Size(h.Shape) == 0 {
		f.fail("tensor %q has shape %v, want [any %d]", name, h.Shape, width)
		return nil
	}
	return h.reshaped(tensor.Size(h.Shape[:n-1]), h.Shape[n-1])
}

// known lists buffers that hold no learned values.
var known = []string{"position_ids", "token_type_ids", "attn_mask", "input_resolution", "context_length", "vocab_size",
	"num_batches_tracked"}

// leftovers refuses unknown tensors inside the towers, since ignoring them would silently change the computation;
// unknown tensors elsewhere become a warning.
func (f *finder) leftovers(s scheme, a *Arch) error {
	var inside, outside []string
	for _, name := range f.c.Names() {
		last := name[strings.LastIndex(name, ".")+1:]
		switch {
		case f.used[name] || slices.Contains(known, last) || strings.HasPrefix(name, bertInside+"pooler."):
		case slices.ContainsFunc(s.towers, func(p string) bool { return strings.HasPrefix(name, p) }):
			inside = append(inside, name)
		default:
			outside = append(outside, name)
		}
	}
	if len(inside) > 0 {
		return fmt.Errorf("%d tensors have no place in a plain CLIP (first: %s); %s", len(inside), sample(inside),
			expected)
	}
	if len(outside) > 0 {
		a.Warnings = append(a.Warnings, fmt.Sprintf("%d tensors outside the towers are not used (first: %s)",
			len(outside), sample(outside)))
	}
	return nil
}
