package ops

import (
	"fmt"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(def{Kind: "GroupNormalization", MinInputs: 3, MinRank: 2, Infer: inferGroupNorm,
		Attrs: "epsilon float, num_groups int, stash_type int", Decompose: decomposeGroupNorm})
}

// inferGroupNorm accepts scale and bias per channel (operator set 21) or per group (18).
func inferGroupNorm(inference *infer) error {
	x, groups := inference.In[0].Shape(), inference.Attrs.Int("num_groups", 0)
	if groups < 1 {
		return fmt.Errorf("num_groups is %d", groups)
	}

	if len(x) < 2 || !x[1].Static() {
		return sameShape(inference)
	}

	if x[1].N%groups != 0 {
		return fmt.Errorf("%v channels in %d groups", x[1], groups)
	}

	for _, v := range inference.In[1:3] {
		s := v.Shape()
		if s == nil {
			continue
		}
		if len(s) != 1 || s[0].Static() && !s[0].Is(groups) && s[0] != x[1] {
			return fmt.Errorf("scale or bias %v is neither per channel (%v) nor per group (%d)", s, x[1], groups)
		}
		if s[0] == x[1] && !x[1].Is(groups) {
			inference.RequireOpset(21)
		}
	}

	return sameShape(inference)
}

// decomposeGroupNorm standardises each group of channels of each example [Wu and He 2018].
func decomposeGroupNorm(c *call, in []node) node {
	x, groups := in[0], c.Attrs.Int("num_groups", 0)
	if !x.Shape()[1].Static() || x.Shape()[1].N < 1 {
		return c.FailNode("the channels of its input must be known when the graph is built")
	}

	flat := reshape(x, vector(sizeOf(x, 0), x.Graph().Ints(groups, -1)))
	y := standardised(flat, c.Attrs.Float("epsilon", 1e-5), []int{2}).ReshapeLike(x)
	perChannel := func(v node) node {
		if v.Rank() == 1 && v.Shape()[0].Is(groups) && !x.Shape()[1].Is(groups) {
			v = v.Unsqueeze(1).Expand(groups, x.Shape()[1].N/groups).Reshape(-1)
		}
		return perChannel(v, x)
	}

	return y.Mul(perChannel(in[1])).Add(perChannel(in[2]))
}
