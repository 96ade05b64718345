package graph

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// infer sets dtype, shape and, for integer vectors, content of the outputs of op. An operator without an entry has
// outputs of unknown shape and of its first input's type.
func infer(op *Op) error {
	for _, o := range op.Out {
		if len(op.In) > 0 && op.In[0].OK() {
			o.v.dtype = op.In[0].v.dtype
		}
	}
	f, ok := inferTable[op.Domain+":"+op.Kind]
	if !ok {
		for _, o := range op.Out {
			if !Differentiable(o.v.dtype) { // a condition or an index says nothing about the result
				o.v.dtype = 0
			}
		}
		return nil
	}
	least := 1
	if n, ok := leastInputs[op.Kind]; ok && op.Domain == Standard {
		least = n
	}
	if op.Domain == Own && op.Kind == "Deferred" {
		least = 0
	}
	if err := op.need(least); err != nil {
		return err
	}
	if err := f(op); err != nil {
		return err
	}
	for _, o := range op.Out {
		if err := o.v.settle(); err != nil {
			return err
		}
	}
	return nil
}

const (
	maxRank    = 64   // axes of a value
	maxContent = 4096 // integers whose values are followed while building
)

// settle refuses shapes that cannot be and drops contents that do not belong to an integer scalar or vector of that
// many elements.
func (v *value) settle() error {
	if len(v.shape) > maxRank {
		return fmt.Errorf("the result has %d axes; at most %d are supported", len(v.shape), maxRank)
	}
	for _, d := range v.shape {
		if d.Static() && d.N < 0 {
			return fmt.Errorf("the result would have shape %v", v.shape)
		}
	}
	if v.shape == nil || !v.shape.Size().Is(len(v.ints)) || len(v.ints) > maxContent || Differentiable(v.dtype) {
		v.ints = nil
	}
	if len(v.shape) > 1 {
		v.ints, v.table = nil, v.ints
	}
	return nil
}

// Differentiable tells whether values of type t can carry a gradient; a type that is not known may.
func Differentiable(t DType) bool {
	switch t {
	case Float, Double, Half, onnx.TensorProto_BFLOAT16, onnx.TensorProto_UNDEFINED:
		return true
	}
	return false
}

// leastInputs is how many inputs an operator must have, where that is more than one and its inference does not look.
var leastInputs = map[string]int{"Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Pow": 2, "Mod": 2, "PRelu": 2, "CumSum": 2,
	"LayerNormalization": 2,
	"BatchNormalization": 5, "InstanceNormalization": 3, "GroupNormalization": 3, "RMSNormalization": 2,
	"SimplifiedLayerNormalization": 2,
	"ReverseSequence":              2, "ScatterND": 3, "ScatterElements": 3}

type inferFunc func(*Op) error

var inferTable map[string]inferFunc

func init() {
	inferTable = map[string]inferFunc{
		":Gather": inferGather, ":GatherElements": inferGatherElements, ":GatherND": inferGatherND,
		":ScatterND": same, ":ScatterElements": same,
		":Reshape": inferReshape, ":Flatten": inferFlatten, ":Transpose": inferTranspose,
		":Squeeze": inferSqueeze, ":Unsqueeze": inferUnsqueeze, ":Expand": inferExpand, ":Tile": inferTile,
		":Concat": inferConcat, ":Split": inferSplit, ":Slice": inferSlice, ":Pad": inferPad,
		":Shape": inferShape, ":Size": inferSize, ":ConstantOfShape": inferConstantOfShape, ":Range": inferRange,
		":NonZero": inferNonZero, ":OneHot": inferOneHot, ":EyeLike": same,
		":MatMul": inferMatMul, ":Gemm": inferGemm, Microsoft + ":FusedMatMul": inferMatMul,
		":Conv": inferConv, ":ConvTranspose": inferConvTranspose, ":GlobalAveragePool": inferGlobalPool,
		":AveragePool": inferPool, ":MaxPool": inferPool, ":Resize": inferResize,
		":Softmax": same, ":LogSoftmax": same, ":LayerNormalization": inferLayerNorm, ":BatchNormalization": same,
		":Cast": inferCast, ":CastLike": inferCastLike, ":Where": inferWhere, ":Dropout": inferDropout,
		":ArgMax": inferArg, ":ArgMin": inferArg, ":Einsum": inferEinsum, ":CumSum": same, ":Trilu": same,
		":TopK": inferTopK, ":DepthToSpace": inferDepthToSpace, ":SpaceToDepth": inferSpaceToDepth,
		":Attention": inferAttention, Microsoft + ":MultiHeadAttention": inferMultiHead,
		":LpPool": inferPool, ":GlobalMaxPool": inferGlobalPool, ":GlobalLpPool": inferGlobalPool,
		":InstanceNormalization": same, ":GroupNormalization": same, ":RMSNormalization": inferSame0,
		":SimplifiedLayerNormalization": inferSame0, Microsoft + ":SkipLayerNormalization": inferSame0,
		":LpNormalization": same, ":MeanVarianceNormalization": same, ":LRN": same, ":Hardmax": same,
		":ReverseSequence": same, ":IsNaN": inferFlags, ":IsInf": inferFlags, ":Not": inferNot,
		Own + ":StopGradient": same, Own + ":Deferred": inferDeferred,
		Own + ":While": inferWhile,
	}
	for _, k := range []string{"Neg", "Sqrt", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Relu", "Softplus", "Abs",
		"Reciprocal", "Identity", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Clip", "LeakyRelu", "Elu",
		"HardSigmoid", "HardSwish", "Gelu", "Selu", "Celu", "ThresholdedRelu", "Mish", "Swish", "Softsign", "Shrink",
		"Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"} {
		inferTable[":"+k] = same
	}
	inferTable[Microsoft+":QuickGelu"] = same
	inferTable[Microsoft+":Gelu"] = same
	inferTable[Microsoft+":FastGelu"] = same
	inferTable[Microsoft+":BiasGelu"] = same
	for _, k := range []string{"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "PRelu"} {
		inferTable[":"+k] = inferElementwise
	}
	for _, k := range []string{"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor"} {
		inferTable[":"+k] = inferCompare
	}
	for _, k := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
		"ReduceL2",
		"ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"} {
		inferTable[":"+k] = inferReduce
	}
}

// InferKinds lists the ONNX operators whose shapes are inferred, sorted.
func InferKinds() []string {
	var out []string
	for k := range inferTable {
		if kind, ok := strings.CutPrefix(k, ":"); ok {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}

func (o *Op) in(i int) Node {
	if i < len(o.In) {
		return o.In[i]
	}
	return Node{}
}

func (o *Op) need(n int) error {
	for i := range n {
		if !o.in(i).OK() {
			return fmt.Errorf("needs %d inputs, has %d", n, len(o.In))
		}
	}
	return nil
}

func (o *Op) set(s Shape) error { o.Out[0].v.shape = s; return nil }

// Axis resolves an axis that may count from the end.
func Axis(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is outside rank %d", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

func same(o *Op) error {
	if o.Kind == "Identity" {
		o.Out[0].v.ints = o.In[0].v.ints
	}
	return o.set(o.In[0].v.shape)
}

func inferElementwise(o *Op) error {
	if err := o.need(len(o.In)); err != nil {
		return err
	}
	s := o.In[0].v.shape
	for _, n := range o.In[1:] {
		if o.Kind != "Pow" && n.v.dtype != o.In[0].v.dtype && n.v.dtype != 0 && o.In[0].v.dtype != 0 {
			return fmt.Errorf("types %v and %v differ", o.In[0].v.dtype, n.v.dtype)
		}
		var err error
		if s, err = Broadcast(s, n.v.shape); err != nil {
			return err
		}
	}
	o.Out[0].v.ints = foldInts(o)
	return o.set(s)
}

func inferCompare(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	o.Out[0].v.dtype = Bool
	o.Out[0].v.ints = foldInts(o)
	s, err := Broadcast(o.In[0].v.shape, o.In[1].v.shape)
	if err != nil {
		return err
	}
	return o.set(s)
}

func inferWhere(o *Op) error {
	if err := o.need(3); err != nil {
		return err
	}
	o.Out[0].v.dtype = o.In[1].v.dtype
	s, err := Broadcast(o.In[0].v.shape, o.In[1].v.shape)
	if err == nil {
		s, err = Broadcast(s, o.In[2].v.shape)
	}
	if err != nil {
		return err
	}
	o.Out[0].v.ints = foldInts(o)
	return o.set(s)
}

func inferCast(o *Op) error {
	if err := same(o); err != nil {
		return err
	}
	to := DType(o.Attrs.Int("to", int(Float)))
	o.Out[0].v.dtype = to
	switch to {
	case Int64, Int32:
		if c, ok := o.In[0].content(); ok || c.cells != nil {
			o.Out[0].v.ints = c.cells
		}
	case Bool:
		if v, ok := staticInts(o.In[0]); ok {
			for _, x := range v {
				o.Out[0].v.ints = append(o.Out[0].v.ints, D(btoi(x != 0)))
			}
		}
	}
	return nil
}

func inferCastLike(o *Op) error {
	if err := o.need(2); err != nil {
		return err
	}
	if err := same(o); err != nil {
		return err
	}
	o.Out[0].v.dtype = o.In[1].v.dtype
	return nil
}

func inferDropout(o *Op) error {
	for i, out := range o.Out {
		out.v.shape = o.In[0].v.shape
		if i == 1 {
			out.v.dtype = Bool
		}
	}
	return nil
}

// ReducedAxes gives the axes that a reduction takes away or sets to 1, in ascending order; ok is false where they or
// the rank are only known at run time.
func (o *Op) ReducedAxes() (axes []int, ok bool, err error) {
	axes, ok = axesOf(o)
	if !ok || o.In[0].Rank() < 0 {
		return nil, false, nil
	}
	rank := o.In[0].Rank()
	if axes = slices.Clone(axes); len(axes) == 0 && o.Attrs.Int("noop_with_empty_axes", 0) == 0 {
		for i := range rank {
			axes = append(axes, i)
		}
	}
	for i := range axes {
		if axes[i], err = Axis(axes[i], rank); err != nil {
			return nil, false, err
		}
	}
	slices.Sort(axes)
	return slices.Compact(axes), true, nil
}

func inferReduce(o *Op) error {
	in := o.In[0].v.shape
	if in == nil {
		return nil
	}
	axes, ok, err := o.ReducedAxes()
	keep := o.Attrs.Int("keepdims", 1) == 1
	if err != nil {
		return err
	}
	if !ok {
		if keep { // each axis is either kept or 1
			out := make(Shape, len(in))
			for i, d := range in {
				if out[i] = d; !d.Is(1) {
					out[i] = opaque("reduced%d.%d", o.ID, i)
				}
			}
			return o.set(out)
		}
		return nil
	}
	out := Shape{}
	for i, d := range in {
		switch {
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, D(1))
		}
	}
	return o.set(out)
}

func inferArg(o *Op) error {
	o.Out[0].v.dtype = Int64
	in := o.In[0].v.shape
	if in == nil {
		return nil
	}
	a, err := Axis(o.Attrs.Int("axis", 0), len(in))
	if err != nil {
		return err
	}
	out := slices.Clone(in)
	if o.Attrs.Int("keepdims", 1) == 1 {
		out[a] = D(1)
	} else {
		out = slices.Delete(out, a, a+1)
	}
	return o.set(out)
}

func inferLayerNorm(o *Op) error {
	if err := same(o); err != nil {
		return err
	}
	in := o.In[0].v.shape
	if in == nil {
		return nil
	}
	a, err := Axis(o.Attrs.Int("axis", -1), len(in))
	if err != nil {
		return err
	}
	stat := slices.Clone(in)
	for i := a; i < len(stat); i++ {
		stat[i] = D(1)
	}
	for _, out := range o.Out[1:] {
		out.v.shape = stat
	}
	return nil
}
