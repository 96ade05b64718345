package ops

import (
	"cmp"
	"errors"
	"fmt"

	"promptfed/runtime/graph"
)

// Quantised operators. Weights that are stored as integers (DequantizeLinear, MatMulNBits) do not prevent gradients.
// Operators that round activations have no gradient, and the error names them.
func init() {
	graph.Register(
		def{Kind: "DequantizeLinear", MinInputs: 2, Attrs: "axis int, block_size int, output_dtype int",
			Decompose: decomposeDequantize, Infer: func(o *infer) error {
				o.SetType(0, o.In[1].DType())
				return sameShape(o)
			}},
		def{Kind: "QuantizeLinear", MinInputs: 2, Infer: inferQuantize,
			Attrs: "axis int, block_size int, output_dtype int, precision int, saturate int"},
		def{Kind: "DynamicQuantizeLinear", MinInputs: 1, Infer: inferDynamicQuantize},
		def{Kind: "MatMulInteger", MinInputs: 2, Infer: typed(graph.Int32, inferMatMul)},
		def{Kind: "ConvInteger", MinInputs: 2, Infer: typed(graph.Int32, inferConv),
			Attrs: windowAttrs + ", group int"},
		def{Domain: graph.Microsoft, Kind: "MatMulNBits", MinInputs: 3, Infer: inferMatMulNBits,
			Attrs: "K int, N int, accuracy_level int, bits int, block_size int", Decompose: decomposeMatMulNBits},
	)
}

// decomposeDequantize returns (x - zero) scale, with scale and zero per tensor or per axis.
func decomposeDequantize(backward *call, in []node) node {
	scale := in[1]
	if backward.Attrs.Int("block_size", 0) != 0 || in[0].Rank() < 0 || scale.Rank() > 1 {
		return backward.FailNode("scales of blocks are not supported")
	}

	along := func(values node) node {
		values = values.Cast(scale.DType())
		if values.Rank() != 1 || values.Shape()[0].Is(1) {
			return values
		}
		axis := backward.Attrs.Int("axis", 1)
		if axis < 0 {
			axis += in[0].Rank()
		}
		for i := axis + 1; i < in[0].Rank(); i++ {
			values = values.Unsqueeze(-1)
		}
		return values
	}

	x := in[0].Cast(scale.DType())
	if zero := optional(in, 2); zero.OK() {
		x = x.Sub(along(zero))
	}

	return x.Mul(along(scale))
}

func inferQuantize(o *infer) error {
	o.SetType(0, cmp.Or(graph.DType(o.Attrs.Int("output_dtype", 0)), graph.Uint8))
	if len(o.In) > 2 && o.In[2].OK() {
		o.SetType(0, o.In[2].DType())
	}
	return o.Set(o.In[0].Shape())
}

func inferDynamicQuantize(o *infer) error {
	types := []graph.DType{graph.Uint8, graph.Float, graph.Uint8}
	if len(o.Out) > len(types) {
		return fmt.Errorf("it has %d outputs; at most %d are defined", len(o.Out), len(types))
	}

	for i := range o.Out {
		o.SetType(i, types[i])
		o.SetOutput(i, graph.Shape{})
	}

	return o.Set(o.In[0].Shape())
}

// nBits holds the sizes of MatMulNBits: y [..,N] = x [..,K] W^T, with W [N,K] stored in blocks along K.
func nBits(at graph.Attrs) (k, n, block int, err error) {
	k, n, block = at.Int("K", 0), at.Int("N", 0), at.Int("block_size", 0)
	if k < 1 || n < 1 || block < 16 || block&(block-1) != 0 || max(k, n, block) > 1<<24 {
		return 0, 0, 0, fmt.Errorf("sizes K %d, N %d, block_size %d", k, n, block)
	}
	return k, n, block, nil
}

func inferMatMulNBits(inference *infer) error {
	k, n, _, err := nBits(inference.Attrs)
	if err != nil {
		return err
	}

	x := inference.In[0].Shape()
	if len(x) == 0 {
		return nil
	}

	if last := x[len(x)-1]; last.Static() && !last.Is(k) {
		return fmt.Errorf("inner sizes %v and %d differ", last, k)
	}

	return inference.Set(append(append(graph.Shape{}, x[:len(x)-1]...), graph.StaticDim(n)))
}

func decomposeMatMulNBits(c *call, in []node) node {
	w, err := NBitsWeight(c.Attrs, in)
	if err != nil {
		return c.FailNode("%v", err)
	}
	return in[0].MatMul(w.Transpose(1, 0))
}

// NBitsWeight returns W [N,K] of a MatMulNBits of 4 bits from its inputs (it ignores the first): W = (q - zero) scale.
// The low half of a byte comes first. zero is 8 unless it is given, packed in the same way.
func NBitsWeight(at graph.Attrs, in []graph.Node) (graph.Node, error) {
	k, n, block, err := nBits(at)
	if err != nil {
		return node{}, err
	}

	zero := optional(in, 3)
	if at.Int("bits", 4) != 4 || zero.OK() && zero.DType() != graph.Uint8 || len(in) > 4 {
		return node{}, errors.New("only weights of 4 bits, with zero points of 4 bits, are supported")
	}

	blocks := (k + block - 1) / block
	halves := func(b node, sizes ...int) node {
		b = b.Cast(graph.Float).Reshape(-1, 1)
		high := apply("Floor", nil, b.MulScalar(1./16))
		return graph.Concat(1, b.Sub(high.MulScalar(16)), high).Reshape(sizes...)
	}

	q := halves(in[1], n, blocks, block)
	if zero.OK() {
		q = q.Sub(halves(zero, n, -1, 1).Slice(1, 0, blocks))
	} else {
		q = q.AddScalar(-8)
	}

	return q.Mul(in[2].Reshape(n, blocks, 1)).Reshape(n, blocks*block).Slice(1, 0, k), nil
}
