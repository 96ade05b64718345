package graph

import (
	"fmt"
	"math"
	"slices"
)

func inferShape(o *Op) error {
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
		return o.setRank(o.In[0], 0)
	}
	if len(dims) == 1 && dims[0].Static() && dims[0].N >= 0 && dims[0].N <= maxContent && fill != nil {
		v.ints = slices.Repeat([]Dim{*fill}, dims[0].N)
	}
	return o.set(append(Shape{}, dims...))
}

func inferRange(o *Op) error {
	if err := o.need(3); err != nil {
		return err
	}
	a, b, c := o.In[0].v.ints, o.In[1].v.ints, o.In[2].v.ints
	if len(a) != 1 || len(b) != 1 || len(c) != 1 || !c[0].Static() {
		return o.set(Shape{opaque("range%d", o.ID)})
	}
	n, step := b[0].Sub(a[0]), c[0].N
	switch {
	case step == 0:
		return fmt.Errorf("step 0")
	case n.Static():
		n = D(rangeLen(0, n.N, step))
	case step != 1:
		n = opaque("range%d", o.ID)
	}
	if n.Static() && n.N <= maxContent && a[0].Static() {
		for i := range n.N {
			o.Out[0].v.ints = append(o.Out[0].v.ints, D(a[0].N+i*step))
		}
	}
	return o.set(Shape{n})
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
	if depth.Static() && depth.N < 1 {
		return fmt.Errorf("depth %v", depth)
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
	index, ok := staticInts(o.In[1])
	if n := x.shape[a]; ok && n.Static() {
		for _, i := range index {
			if i < -n.N || i >= n.N {
				return fmt.Errorf("index %d is outside an axis of %d", i, n.N)
			}
		}
	}
	if ok && x.ints != nil {
		for _, i := range index {
			if i < 0 {
				i += len(x.ints)
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
	reach, batch := idx[len(idx)-1].N, o.Attrs.Int("batch_dims", 0)
	k := reach + batch
	if batch < 0 || batch >= len(idx) || reach < 0 || k > len(x) || k < 0 {
		return fmt.Errorf("indices of shape %v after %d batch axes do not fit shape %v", idx, batch, x)
	}
	return o.set(append(slices.Clone(idx[:len(idx)-1]), x[k:]...))
}

func inferSlice(o *Op) error {
	if err := o.need(3); err != nil {
		return err
	}
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
		if known := o.in(2).v.ints; ok1 && ok3 && ok4 && step == nil && len(start) == 1 && len(known) == 1 &&
			start[0] == 0 {
			if a, err := Axis(first(axes, 0), len(out)); err == nil {
				out[a] = known[0]
			}
		}
		return o.set(out)
	}
	if n := len(start); len(end) != n || axes != nil && len(axes) != n || step != nil && len(step) != n {
		return fmt.Errorf("%d starts, %d ends, %d axes, %d steps", n, len(end), len(axes), len(step))
	}
	content, grown := o.In[0].content()
	grown = grown && len(in.shape) > 1
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
		switch {
		case len(in.shape) == 1 && in.ints != nil:
			o.Out[0].v.ints = sliceDims(in.ints, start[i], end[i], st)
		case grown:
			from, _ := clampRange(content.shape[a], start[i], end[i], st)
			content = content.sliced(a, from, st, n.N)
			o.Out[0].v.ints = content.cells
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
		case start >= 0 && end == start+1:
			return D(1), nil // trusted to lie inside, as one entry mostly does
		case start >= 0 && end < 0:
			return d.Sub(D(start - end)), nil
		case start >= 0 && end >= math.MaxInt32:
			return d.Sub(D(start)), nil
		case start == -1 && end >= math.MaxInt32:
			return D(1), nil
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
	if step > 0 && j > i {
		return (j-i-1)/step + 1
	}
	if step < 0 && i > j {
		return (j-i+1)/step + 1
	}
	return 0
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
	n := 1
	for _, x := range o.In {
		switch l := len(x.v.ints); {
		case x.v.ints == nil, l != 1 && n != 1 && l != n:
			return nil
		case l != 1:
			n = l
		}
	}
	out := make([]Dim, 0, n)
	for j := range n {
		d, ok := Dim{}, true
		args := make([]Dim, len(o.In))
		for i, x := range o.In {
			if args[i] = x.v.ints[0]; len(x.v.ints) > 1 {
				args[i] = x.v.ints[j]
			}
		}
		if o.Kind == "Where" {
			d, ok = foldWhere(args)
		} else {
			d = args[0]
			for i := 1; i < len(args) && ok; i++ {
				d, ok = foldTwo(o.Kind, d, args[i])
			}
		}
		if !ok {
			return nil
		}
		out = append(out, d)
	}
	return out
}

func foldWhere(args []Dim) (Dim, bool) {
	switch {
	case !args[0].Static():
		return Dim{}, false
	case args[0].N != 0:
		return args[1], true
	}
	return args[2], true
}

func foldTwo(kind string, a, b Dim) (Dim, bool) {
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
	case "Greater":
		return D(btoi(a.N > b.N)), static
	case "Less":
		return D(btoi(a.N < b.N)), static
	case "GreaterOrEqual":
		return D(btoi(a.N >= b.N)), static
	case "LessOrEqual":
		return D(btoi(a.N <= b.N)), static
	case "And":
		return D(btoi(a.N != 0 && b.N != 0)), static
	case "Or":
		return D(btoi(a.N != 0 || b.N != 0)), static
	case "Xor":
		return D(btoi((a.N != 0) != (b.N != 0))), static
	}
	return Dim{}, false
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
