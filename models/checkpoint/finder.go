package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/tensor"
)

// finder looks up tensors, checks their shapes, collects them under the names of clip.Weights, and keeps the first
// failure.
type finder struct {
	ckpt  *Checkpoint
	used  map[string]bool
	found []Tensor
	err   error
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

	handle := f.ckpt.handles[name]
	if handle == nil {
		f.fail("tensor %q is missing; %s", name, expected)
		return nil
	}

	f.used[name] = true
	switch handle.DType {
	case "F32", "F16", "BF16", "F64":
	default:
		f.fail("tensor %q is stored as %s; quantised weights are not supported, want F32, F16, BF16 or F64", name,
			handle.DType)
		return nil
	}

	if len(shape) > 0 {
		f.shape(handle, shape...)
	}

	return handle
}

func (f *finder) shape(handle *Handle, want ...int) {
	if f.err != nil {
		return
	}

	ok := len(handle.Shape) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = want[i] == handle.Shape[i] || want[i] == -1 && handle.Shape[i] > 0
	}

	if !ok {
		text := strings.ReplaceAll(fmt.Sprint(want), "-1", "any")
		f.fail("tensor %q has shape %v, want %s", handle.Name, handle.Shape, text)
	}
}

// put adds a tensor under a name of clip.Weights.
func (f *finder) put(to string, h *Handle) { f.found = append(f.found, Tensor{to, h}) }

// take adds the tensor called name.
func (f *finder) take(to, name string, shape ...int) *Handle {
	h := f.find(name, shape...)
	f.put(to, h)
	return h
}

// pair adds weight and bias of a linear layer [out,in] or of a norm [width].
func (f *finder) pair(to, from string, shape ...int) {
	f.take(to+"weight", from+"weight", shape...)
	f.take(to+"bias", from+"bias", shape[0])
}

// projection adds a map from width to embed (-1 means any), which it returns. A parameter [width,embed] is called plain
// and used as x @ P; a Linear is [embed,width], may have a bias, and is called rows with the ending weight.
func (f *finder) projection(plain, rows, name string, linear bool, width, embed int) (size int, bias bool) {
	if !linear && !strings.HasSuffix(name, ".weight") {
		if h := f.take(plain, name, width, embed); f.err == nil {
			size = h.Shape[1]
		}
		return size, false
	}

	if h := f.take(rows+"weight", name, embed, width); f.err == nil {
		size = h.Shape[0]
	}

	name = strings.TrimSuffix(name, "weight") + "bias"
	if bias = f.err == nil && f.ckpt.Has(name); bias {
		f.take(rows+"bias", name, size)
	}

	return size, bias
}

// count returns the number of children 0, 1, ... under a prefix; a gap is a failure.
func (f *finder) count(prefix string) int {
	seen := map[int]bool{}
	for _, name := range f.ckpt.Names() {
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

// blocks adds the residual blocks under a prefix and returns their number and the units of their feed-forward layers,
// with 0 for the usual 4*width, so that each architecture has one notation.
func (f *finder) blocks(tower string, names blockNames, prefix string, width int) (n, units int) {
	n = f.count(prefix)
	if n == 0 {
		f.fail("no blocks under %q; %s", prefix, expected)
	}

	up := f.find(prefix+"0."+names.up+"weight", -1, width)
	if f.err != nil {
		return 0, 0
	}

	mlp := up.Shape[0]
	for i := range n {
		from, to := fmt.Sprintf("%s%d.", prefix, i), fmt.Sprintf("%stransformer.resblocks.%d.", tower, i)
		f.pair(to+"ln_1.", from+names.norm1, width)
		if names.fused != "" {
			f.pair(to+"attn.in_proj_", from+names.fused, 3*width, width)
		} else {
			for k, name := range []string{"attn.q_proj.", "attn.k_proj.", "attn.v_proj."} {
				f.pair(to+name, from+names.parts[k], width, width)
			}
		}

		f.pair(to+"attn.out_proj.", from+names.out, width, width)
		f.scale(from+names.scales[0], width)
		f.pair(to+"ln_2.", from+names.norm2, width)
		f.pair(to+"mlp.c_fc.", from+names.up, mlp, width)
		f.pair(to+"mlp.c_proj.", from+names.down, width, mlp)
		f.scale(from+names.scales[1], width)
		if f.err != nil {
			return 0, 0
		}
	}

	if mlp != 4*width {
		units = mlp
	}

	return n, units
}

// scale multiplies the outputs of the last linear layer with a tensor (layer scale: Touvron et al., ICCV 2021), if
// there is one with this name.
func (f *finder) scale(name string, width int) {
	if !f.ckpt.Has(name) {
		return
	}

	gamma := f.find(name, width)
	if f.err != nil {
		return
	}

	for i := len(f.found) - 2; i < len(f.found); i++ {
		f.found[i].Handle = computed(f.found[i].Handle, func(t *tensor.Tensor) error {
			by, err := finite(gamma)
			if err == nil {
				scaleRows(t, by.Data)
			}
			return err
		})
	}
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

// rows returns a tensor as [n,width]; it may be stored with axes of size 1 in front, or without the first axis if n is
// 1.
func (f *finder) rows(name string, width int) *Handle {
	handle := f.find(name)
	if f.err != nil {
		return nil
	}

	n := len(handle.Shape)
	if n == 0 || handle.Shape[n-1] != width && width > 0 || tensor.Size(handle.Shape[:n-1]) != handle.Shape[max(0,
		n-2)] && n > 1 || tensor.Size(handle.Shape) == 0 {
		f.fail("tensor %q has shape %v, want [any %d]", name, handle.Shape, width)
		return nil
	}

	return handle.reshaped(tensor.Size(handle.Shape[:n-1]), handle.Shape[n-1])
}

// known lists buffers that hold no learned values.
var known = []string{"position_ids", "token_type_ids", "attn_mask", "input_resolution", "context_length", "vocab_size",
	"num_batches_tracked"}

// leftovers refuses unknown tensors inside the towers, since ignoring them would silently change the computation;
// unknown tensors elsewhere become a warning.
func (f *finder) leftovers(s scheme, arch *Arch) error {
	var inside, outside []string
	for _, name := range f.ckpt.Names() {
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
		arch.Warnings = append(arch.Warnings, fmt.Sprintf("%d tensors outside the towers are not used (first: %s)",
			len(outside), sample(outside)))
	}

	return nil
}
