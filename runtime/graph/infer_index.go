package graph

import (
	"fmt"
	"math"
	"slices"
)

func inferShape(o *Op) error {
	if err := o.need(1); err != nil {
		return err
	}
	v := o.Out[0].v
	v.dtype = Int64
	in := o.In[0].v.shape
	if in == nil {
		return nil
	}
	from, to := clampAxis(o.Attrs.Int("start", 0), len(in)), clampAxis(o.Attrs.Int("end", len(in)), len(in))
	v.ints = slices.Clone([]Dim(in[from:max(from, to)]))
	if v.ints == nil {
		v.ints = []Dim{}
	}
	return o.set(Static(len(v.ints)))
}

func clampAxis(a, rank int) int {
	if a < 0 {
		a += rank
	}
	return min(max(a, 0), rank)
}

func inferSize(o *Op) error {
	o.Out[0].v.dtype = Int64
	if s := o.In[0].v.shape; s != nil {
		o.Out[0].v.ints = []Dim{s.Size()}
	}
	return o.set(Shape{})
}

func inferConstantOfShape(o *Op) error {
	v := o.Out[0].v
	v.dtype = Float
	fill := (*Dim)(nil)
	if p := o.Attrs.tensor("value"); p != nil {
		v.dtype = DType(p.DataType)
		if x, ok := protoInts(p); ok && len(x) == 1 {
			fill = &x[0]
		}
	}
	dims := o.In[0].v.ints
	if dims == nil {
		if s := o.In[0].v.shape; s != nil && len(s) == 1 && s[0].Static() {
			out := make(Shape, s[0].N)
			for i := range out {
				out[i] = opaque("fill%d.%d", o.ID, i)
			}
			return o.set(out)
		}
		return nil
	}
	if len(dims) == 1 && dims[0].Static() && dims[0].N < 64 && fill != nil {
		v.ints = slices.Repeat([]Dim{*fill}, dims[0].N)
	}
	return o.set(append(Shape{}, dims...))
}

func inferRange(o *Op) error {
	if err := o.need(3); err != nil {
		return err
	}
	a, b, c := o.In[0].v.ints, o.In[1].v.ints, o.In[2].v.ints
	if len(a) == 1 && len(b) == 1 && len(c) == 1 && c[0].Is(1) {
		n := b[0].Sub(a[0])
		if n.Static() && n.N >= 0 && n.N < 4096 && a[0].Static() {
			for i := range n.N {
				o.Out[0].v.ints = append(o.Out[0].v.ints, D(a[0].N+i))
			}
		}
		return o.set(Shape{n})
	}
	return o.set(Shape{opaque("range%d", o.ID)})
}

func inferNonZero(o *Op) error {
	o.Out[0].v.dtype = Int64
	if s := o.In[0].v.shape; s != nil {
		return o.set(Shape{D(max(1, len(s))), opaque("nonzero%d", o.ID)})
	}
	return nil
}

func inferOneHot(o *Op) error {
	if err := o.need(3); err != nil {
		return err
	}
	o.Out[0].v.dtype = o.In[2].v.dtype
	in := o.In[0].v.shape
	if in == nil {
		return nil
	}
	depth := opaque("depth%d", o.ID)
	if d := o.In[1].v.ints; len(d) == 1 {
		depth = d[0]
	}
	a, err := Axis(o.Attrs.Int("axis", -1), len(in)+1)
	if err != nil {
		return err
	}
	return o.set(slices.Insert(slices.Clone(in), a, depth))
}

func inferGather(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	x, idx := o.In[0].v, o.In[1].v
	if x.shape == nil || idx.shape == nil {
		return nil
	}
	a, err := Axis(o.Attrs.Int("axis", 0), len(x.shape))
	if err != nil {
		return err
	}
	if x.ints != nil && idx.ints != nil && len(x.shape) == 1 {
		for _, d := range idx.ints {
			i := d.N
			if i < 0 {
				i += len(x.ints)
			}
			if !d.Static() || i < 0 || i >= len(x.ints) {
				o.Out[0].v.ints = nil
				break
			}
			o.Out[0].v.ints = append(o.Out[0].v.ints, x.ints[i])
		}
	}
	out := append(slices.Clone(x.shape[:a]), idx.shape...)
	return o.set(append(out, x.shape[a+1:]...))
}

func inferGatherElements(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	return o.set(o.In[1].v.shape)
}

func inferGatherND(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	x, idx := o.In[0].v.shape, o.In[1].v.shape
	if x == nil || len(idx) == 0 || !idx[len(idx)-1].Static() {
		return nil
	}
	k := idx[len(idx)-1].N + o.Attrs.Int("batch_dims", 0)
	if k > len(x) {
		return fmt.Errorf("indices reach %d axes of shape %v", k, x)
	}
	return o.set(append(slices.Clone(idx[:len(idx)-1]), x[k:]...))
}

func inferSlice(o *Op) error {
	in := o.In[0].v
	if in.shape == nil {
		return nil
	}
	start, ok1 := staticInts(o.in(1))
	end, ok2 := staticInts(o.in(2))
	axes, ok3 := staticInts(o.in(3))
	step, ok4 := staticInts(o.in(4))
	out := slices.Clone(in.shape)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		for i := range out { // unknown extents on every axis that may be cut
			if axes == nil || slices.Contains(axes, i) || slices.Contains(axes, i-len(out)) {
				out[i] = opaque("slice%d.%d", o.ID, i)
			}
		}
		if known := o.in(2).v.ints; ok1 && ok3 && ok4 && step == nil && len(start) == 1 && len(known) == 1 && start[0] == 0 {
			if a, err := Axis(first(axes, 0), len(out)); err == nil {
				out[a] = known[0]
			}
		}
		return o.set(out)
	}
	for i := range start {
		a := i
		if axes != nil {
			a = axes[i]
		}
		a, err := Axis(a, len(out))
		if err != nil {
			return err
		}
		st := 1
		if step != nil {
			st = step[i]
		}
		if st == 0 {
			return fmt.Errorf("step 0")
		}
		n, err := sliceLen(out[a], start[i], end[i], st)
		if err != nil {
			n = opaque("slice%d.%d", o.ID, a)
		}
		out[a] = n
		if len(in.shape) == 1 && in.ints != nil {
			o.Out[0].v.ints = sliceDims(in.ints, start[i], end[i], st)
		}
	}
	return o.set(out)
}

func first(v []int, missing int) int {
	if len(v) > 0 {
		return v[0]
	}
	return missing
}

// sliceLen is the number of elements that start:end:step keeps of an axis.
func sliceLen(d Dim, start, end, step int) (Dim, error) {
	if !d.Static() {
		switch {
		case step != 1:
		case start >= 0 && end >= 0 && end < math.MaxInt32:
			return D(max(0, end-start)), nil // trusted to lie inside
		case start == 0 && end < 0:
			return d.Sub(D(-end)), nil
		case start >= 0 && end >= math.MaxInt32:
			return d.Sub(D(start)), nil
		case start < 0 && end >= math.MaxInt32:
			return D(-start), nil
		}
		return Dim{}, fmt.Errorf("symbolic")
	}
	i, j := clampRange(d.N, start, end, step)
	return D(rangeLen(i, j, step)), nil
}

func clampRange(n, start, end, step int) (int, int) {
	fix := func(v, lo, hi int) int {
		if v < 0 {
			v += n
		}
		return min(max(v, lo), hi)
	}
	if step > 0 {
		return fix(start, 0, n), fix(end, 0, n)
	}
	if end < -n {
		return fix(start, 0, n-1), -1
	}
	return fix(start, 0, n-1), fix(end, -1, n-1)
}

func rangeLen(i, j, step int) int {
	if step > 0 {
		return max(0, (j-i+step-1)/step)
	}
	return max(0, (i-j-step-1)/-step)
}

func sliceDims(v []Dim, start, end, step int) []Dim {
	i, j := clampRange(len(v), start, end, step)
	out := []Dim{}
	for n := rangeLen(i, j, step); n > 0; n-- {
		out = append(out, v[i])
		i += step
	}
	return out
}

// staticInts reads an optional integer input; ok is false when it is there but not known.
func staticInts(n Node) (v []int, ok bool) {
	if !n.OK() {
		return nil, true
	}
	if n.v.ints == nil {
		return nil, false
	}
	for _, d := range n.v.ints {
		if !d.Static() {
			return nil, false
		}
		v = append(v, d.N)
	}
	return v, true
}

// foldInts computes an integer operator on contents that are known while building.
func foldInts(o *Op) []Dim {
	args := make([][]Dim, len(o.In))
	n := 1
	for i, x := range o.In {
		if x.v.ints == nil || len(x.v.shape) > 1 {
			return nil
		}
		args[i] = x.v.ints
		if len(args[i]) != 1 {
			n = len(args[i])
		}
	}
	at := func(i, j int) Dim {
		if len(args[i]) == 1 {
			return args[i][0]
		}
		return args[i][j]
	}
	out := make([]Dim, 0, n)
	for j := range n {
		d, ok := foldOne(o.Kind, func(i int) Dim { return at(i, j) })
		if !ok {
			return nil
		}
		out = append(out, d)
	}
	return out
}

func foldOne(kind string, arg func(int) Dim) (Dim, bool) {
	a, b := arg(0), arg(1)
	static := a.Static() && b.Static()
	switch kind {
	case "Add":
		return a.Add(b), true
	case "Sub":
		return a.Sub(b), true
	case "Mul":
		return a.Mul(b), true
	case "Div":
		if static && b.N != 0 {
			return D(a.N / b.N), true
		}
		return a.Div(b)
	case "Mod":
		if static && b.N > 0 && a.N >= 0 {
			return D(a.N % b.N), true
		}
	case "Max":
		if static {
			return D(max(a.N, b.N)), true
		}
	case "Min":
		if static {
			return D(min(a.N, b.N)), true
		}
	case "Equal":
		if static || a == b {
			return D(btoi(a == b)), true
		}
		if a.Is(-1) || b.Is(-1) {
			return D(0), true // a size is never -1
		}
	case "Where":
		if a.Static() {
			if a.N != 0 {
				return b, true
			}
			return arg(2), true
		}
	}
	return Dim{}, false
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
