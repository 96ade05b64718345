package clip_test

import (
	"hash/fnv"
	"math"

	"promptfed/models/clip"
	"promptfed/runtime/tensor"
)

// formula returns weights that tools/golden/towers.py can reproduce: number i of the tensor called name is offset +
// scale·(2u-1) with u in [0,1) from 24 bits of a 32-bit integer hash of (FNV-1a of the name) + i. Gains have offset 1;
// matrices have a scale that keeps activations near 1.
func formula(name string, shape []int) *tensor.Tensor {
	offset, scale := 0.0, 0.1
	switch fan := fanIn(name, shape); {
	case isGain(name):
		offset = 1
	case fan > 0:
		scale = math.Sqrt(3 / float64(fan))
	}
	return hashed(name, shape, offset, scale)
}

func hashed(name string, shape []int, offset, scale float64) *tensor.Tensor {
	h := fnv.New32a()
	h.Write([]byte(name))
	seed := h.Sum32()
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(offset + scale*(2*unit(seed+uint32(i))-1))
	}
	return t
}

// unit is lowbias32 (Wellons 2018), with its upper 24 bits as a fraction.
func unit(x uint32) float64 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	x ^= x >> 16
	return float64(x>>8) / (1 << 24)
}

func isGain(name string) bool {
	for _, p := range []string{"ln_1.weight", "ln_2.weight", "ln_final.weight", "ln_pre.weight", "ln_post.weight"} {
		if len(name) >= len(p) && name[len(name)-len(p):] == p {
			return true
		}
	}
	return false
}

// fanIn returns the number of inputs of a matrix; 0 for vectors and embeddings.
func fanIn(name string, shape []int) int {
	switch {
	case name == "text_projection" || name == "visual.proj":
		return shape[0]
	case name == "positional_embedding" || name == "visual.positional_embedding" || len(shape) < 2:
		return 0
	}
	return tensor.Size(shape[1:])
}

func formulaWeights(shapes map[string][]int) clip.ConstantWeights {
	m := clip.ConstantWeights{}
	for name, s := range shapes {
		m[name] = formula(name, s)
	}
	return m
}

// embedding returns row id of the token embedding by the same formula.
func embedding(width int) func(ids []int) ([]float32, error) {
	h := fnv.New32a()
	h.Write([]byte("token_embedding.weight"))
	seed := h.Sum32()
	return func(ids []int) ([]float32, error) {
		out := make([]float32, 0, len(ids)*width)
		for _, id := range ids {
			for j := range width {
				out = append(out, float32(0.1*(2*unit(seed+uint32(id*width+j))-1)))
			}
		}
		return out, nil
	}
}
