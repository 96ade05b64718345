package graph

import (
	"fmt"
	"slices"
	"strings"
)

func inferMatMul(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	a, b := o.In[0].v.shape, o.In[1].v.shape
	if a == nil || b == nil {
		return nil
	}
	if len(a) == 0 || len(b) == 0 {
		return fmt.Errorf("a scalar")
	}
	if o.Attrs.Int("transBatchA", 0) != 0 || o.Attrs.Int("transBatchB", 0) != 0 {
		return nil
	}
	a, b = slices.Clone(a), slices.Clone(b)
	rowA, colB := len(a) > 1, len(b) > 1
	if !rowA {
		a = append(Shape{D(1)}, a...)
	}
	if !colB {
		b = append(b, D(1))
	}
	if o.Attrs.Int("transA", 0) != 0 && rowA { // ONNX Runtime ignores it for a vector
		a[len(a)-1], a[len(a)-2] = a[len(a)-2], a[len(a)-1]
	}
	if o.Attrs.Int("transB", 0) != 0 && colB {
		b[len(b)-1], b[len(b)-2] = b[len(b)-2], b[len(b)-1]
	}
	k, l := a[len(a)-1], b[len(b)-2]
	if k.Static() && l.Static() && k != l {
		return fmt.Errorf("inner sizes %v and %v differ", k, l)
	}
	out, err := Broadcast(a[:len(a)-2], b[:len(b)-2])
	if err != nil {
		return err
	}
	out = slices.Clone(out)
	if rowA {
		out = append(out, a[len(a)-2])
	}
	if colB {
		out = append(out, b[len(b)-1])
	}
	if out == nil {
		out = Shape{}
	}
	return o.set(out)
}

func inferGemm(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	a, b := o.In[0].v.shape, o.In[1].v.shape
	if a == nil || b == nil {
		return nil
	}
	if len(a) != 2 || len(b) != 2 {
		return fmt.Errorf("ranks %d and %d, both must be 2", len(a), len(b))
	}
	m, k, l, n := a[0], a[1], b[0], b[1]
	if o.Attrs.Int("transA", 0) != 0 {
		m, k = k, m
	}
	if o.Attrs.Int("transB", 0) != 0 {
		l, n = n, l
	}
	if k.Static() && l.Static() && k != l {
		return fmt.Errorf("inner sizes %v and %v differ", k, l)
	}
	if c := o.in(2); c.OK() && c.v.shape != nil {
		if s, err := Broadcast(Shape{m, n}, c.v.shape); err != nil || len(s) != 2 {
			return fmt.Errorf("bias %v does not fit [%v,%v]", c.v.shape, m, n)
		}
	}
	return o.set(Shape{m, n})
}

func (o *Op) spatial(kernel []int) (pads, strides, dilations []int) {
	n := len(kernel)
	get := func(name string, v, count int) []int {
		if a, ok := o.Attrs.Ints(name); ok && len(a) == count {
			return a
		}
		return slices.Repeat([]int{v}, count)
	}
	return get("pads", 0, 2*n), get("strides", 1, n), get("dilations", 1, n)
}

// Window gives kernel size, pads, strides and dilations of a convolution or pooling operator with a known kernel.
func (o *Op) Window() (kernel, pads, strides, dilations []int, err error) {
	kernel, ok := o.Attrs.Ints("kernel_shape")
	if !ok {
		if w := o.in(1); w.OK() && len(w.v.shape) > 2 {
			if kernel, ok = w.v.shape[2:].Ints(); !ok {
				return nil, nil, nil, nil, fmt.Errorf("the kernel size is not known")
			}
		}
	}
	if n := o.In[0].Rank(); n >= 0 && len(kernel) != n-2 {
		return nil, nil, nil, nil, fmt.Errorf("a kernel of %v for an input of rank %d", kernel, n)
	}
	pads, strides, dilations = o.spatial(kernel)
	for _, v := range slices.Concat(kernel, strides, dilations) {
		if v < 1 || v > maxWindow {
			return nil, nil, nil, nil, fmt.Errorf("kernel %v, strides %v and dilations %v must be from 1 to %d", kernel,
				strides, dilations, maxWindow)
		}
	}
	switch auto := o.Attrs.Str("auto_pad", "NOTSET"); auto {
	case "NOTSET":
	case "VALID":
		clear(pads)
	case "SAME_UPPER", "SAME_LOWER":
		if pads, err = o.samePads(kernel, strides, dilations, auto == "SAME_LOWER"); err != nil {
			return nil, nil, nil, nil, err
		}
	default:
		return nil, nil, nil, nil, fmt.Errorf("auto_pad %s is not known", auto)
	}
	return kernel, pads, strides, dilations, nil
}

// samePads are the pads that make a window operator's result ceil(input/stride) wide, the odd one at the end or in
// front.
func (o *Op) samePads(kernel, strides, dilations []int, front bool) ([]int, error) {
	x, n := o.In[0].v.shape, len(kernel)
	if o.Kind == "ConvTranspose" || len(x) != n+2 {
		return nil, fmt.Errorf("auto_pad is not supported here; export with explicit pads")
	}
	pads := make([]int, 2*n)
	for i := range kernel {
		d := x[2+i]
		if !d.Static() {
			if strides[i] > 1 {
				return nil, fmt.Errorf("auto_pad needs a known size; export with explicit pads")
			}
			d = D(strides[i])
		}
		total := max(0, ((d.N+strides[i]-1)/strides[i]-1)*strides[i]+(kernel[i]-1)*dilations[i]+1-d.N)
		pads[i], pads[i+n] = total/2, total-total/2
		if front {
			pads[i], pads[i+n] = pads[i+n], pads[i]
		}
	}
	return pads, nil
}

func inferConv(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	x, w := o.In[0].v.shape, o.In[1].v.shape
	if x == nil || w == nil || len(x) < 3 {
		return nil
	}
	if g := o.Attrs.Int("group", 1); g < 1 || len(w) != len(x) || x[1].Static() && w[1].Static() &&
		x[1] != w[1].Mul(D(g)) {
		return fmt.Errorf("weights %v in %d groups do not fit", w, g)
	}
	return windowShape(o, x, w[0])
}

func inferPool(o *Op) error {
	x := o.In[0].v.shape
	if len(x) < 3 {
		return nil
	}
	return windowShape(o, x, x[1])
}

// maxWindow bounds kernels, strides and dilations.
const maxWindow = 1 << 20

// unknownWindow keeps batch and channels where the rest of the shape cannot be found out: ONNX Runtime may still run
// it.
func unknownWindow(o *Op, x Shape, channels Dim) error {
	out := append(slices.Clone(x[:1]), channels)
	for i := 2; i < len(x); i++ {
		out = append(out, opaque("window%d.%d", o.ID, i-2))
	}
	return o.set(out)
}

func windowShape(o *Op, x Shape, channels Dim) error {
	k, p, s, d, err := o.Window()
	if err != nil {
		return unknownWindow(o, x, channels)
	}
	out := append(slices.Clone(x[:1]), channels)
	for i := range k {
		in := x[2+i].Add(D(p[i] + p[i+len(k)] - d[i]*(k[i]-1) - 1))
		q, ok := Dim{}, false
		switch {
		case in.Static() && in.N < 0:
			return fmt.Errorf("kernel %v is larger than %v", k, x)
		case in.Static() && o.Attrs.Int("ceil_mode", 0) == 1:
			// no window starts in the end padding
			if q, ok = D((in.N+s[i]-1)/s[i]+1), true; (q.N-1)*s[i] >= x[2+i].N+p[i] {
				q.N--
			}
		case in.Static():
			q, ok = D(in.N/s[i]+1), true
		case s[i] == 1:
			q, ok = in.Add(D(1)), true
		}
		if !ok {
			q = opaque("window%d.%d", o.ID, i)
		}
		out = append(out, q)
	}
	return o.set(out)
}

func inferConvTranspose(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	x, w := o.In[0].v.shape, o.In[1].v.shape
	if x == nil || w == nil || len(x) < 3 {
		return nil
	}
	group := o.Attrs.Int("group", 1)
	if group < 1 || len(w) != len(x) || x[1].Static() && w[0].Static() && x[1] != w[0] {
		return fmt.Errorf("weights %v in %d groups do not fit", w, group)
	}
	channels := w[1].Mul(D(group))
	k, p, s, d, err := o.Window()
	if _, given := o.Attrs.Ints("output_shape"); err != nil || given {
		return unknownWindow(o, x, channels)
	}
	extra, ok := o.Attrs.Ints("output_padding")
	if !ok || len(extra) != len(k) {
		extra = make([]int, len(k))
	}
	out := append(slices.Clone(x[:1]), channels)
	for i := range k {
		in := x[2+i]
		if !in.Static() {
			out = append(out, opaque("window%d.%d", o.ID, i))
			continue
		}
		out = append(out, D(s[i]*(in.N-1)+extra[i]+(k[i]-1)*d[i]+1-p[i]-p[i+len(k)]))
	}
	return o.set(out)
}

func inferGlobalPool(o *Op) error {
	x := o.In[0].v.shape
	if x == nil {
		return nil
	}
	out := slices.Clone(x)
	for i := 2; i < len(out); i++ {
		out[i] = D(1)
	}
	return o.set(out)
}

func inferResize(o *Op) error {
	x := o.In[0].v.shape
	if x == nil {
		return nil
	}
	if sizes := o.in(3); sizes.OK() && len(sizes.v.ints) == len(x) {
		return o.set(append(Shape{}, sizes.v.ints...))
	}
	out := make(Shape, len(x))
	for i := range out {
		out[i] = opaque("resize%d.%d", o.ID, i)
	}
	return o.set(out)
}

// Equation gives the index letters of every operand and of the result of an Einsum, with letters for an ellipsis and
// the result written out where the equation leaves it to the rule of alphabetical order; ok is false where ranks are
// not known.
func (o *Op) Equation() (terms []string, result string, ok bool, err error) {
	lhs, result, given := strings.Cut(strings.ReplaceAll(o.Attrs.Str("equation", ""), " ", ""), "->")
	terms = strings.Split(lhs, ",")
	if len(terms) != len(o.In) {
		return nil, "", false, fmt.Errorf("equation %q for %d operands", o.Attrs.Str("equation", ""), len(o.In))
	}
	const spare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	free := strings.Map(func(r rune) rune {
		if strings.ContainsRune(lhs, r) {
			return -1
		}
		return r
	}, spare)
	longest := 0
	for i, t := range terms {
		named := strings.Replace(t, "...", ".", 1)
		if !strings.Contains(named, ".") {
			continue
		}
		n := o.In[i].Rank() - (len(named) - 1)
		switch {
		case o.In[i].Rank() < 0:
			return nil, "", false, nil
		case n < 0 || n > len(free):
			return nil, "", false, fmt.Errorf("%q does not fit shape %v", t, o.In[i].Shape())
		}
		longest = max(longest, n)
		terms[i] = strings.Replace(named, ".", "\x00"+strings.Repeat("?", n), 1)
	}
	for i, t := range terms {
		if head, rest, cut := strings.Cut(t, "\x00"); cut {
			n := strings.Count(rest, "?")
			terms[i] = head + free[longest-n:longest] + strings.TrimLeft(rest, "?")
		}
	}
	if given {
		return terms, strings.Replace(result, "...", free[:longest], 1), true, nil
	}
	all := []byte(strings.Join(terms, ""))
	slices.Sort(all)
	for i, r := range all {
		if !strings.ContainsRune(free[:longest], rune(r)) && (i == 0 || all[i-1] != r) && (i+1 == len(all) ||
			all[i+1] != r) {
			result += string(r)
		}
	}
	return terms, free[:longest] + result, true, nil
}

func inferEinsum(o *Op) error {
	terms, rhs, ok, err := o.Equation()
	if err != nil || !ok {
		return err
	}
	if err := o.need(len(terms)); err != nil {
		return err
	}
	dim := map[byte]Dim{}
	for i, term := range terms {
		s := o.In[i].v.shape
		if s == nil {
			return nil
		}
		if len(s) != len(term) {
			return fmt.Errorf("%q does not fit shape %v", term, s)
		}
		for j := range s {
			old, seen := dim[term[j]]
			switch {
			case seen && old.Static() && s[j].Static() && old != s[j] && !old.Is(1) && !s[j].Is(1):
				return fmt.Errorf("index %c is %v and %v", term[j], old, s[j])
			case !seen || old.Is(1) || s[j].Static() && !s[j].Is(1):
				dim[term[j]] = s[j]
			}
		}
	}
	out := Shape{}
	for j := range len(rhs) {
		d, ok := dim[rhs[j]]
		if !ok {
			return fmt.Errorf("index %c of the result is in no operand of %q", rhs[j], o.Attrs.Str("equation", ""))
		}
		out = append(out, d)
	}
	return o.set(out)
}
