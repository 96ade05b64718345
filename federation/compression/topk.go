package compression

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"promptfed/runtime/tensor"
)

// mapped reports whether the indices of k of n numbers are a bitmap, which is then shorter than a list.
func mapped(n, k int) bool { return k*placeBits(n) > n }

// placeBits returns the number of bits of an index below n.
func placeBits(n int) int { return bits.Len(uint(max(1, n-1))) }

// encodeLargest writes the largest numbers; among equal ones, the first.
func (c Codec) encodeLargest(d []float64) tensor.Map {
	order := tensor.Order(len(d), func(a, b int) int { return cmp.Compare(math.Abs(d[b]), math.Abs(d[a])) })
	order = order[:c.kept(len(d))]
	slices.Sort(order)
	values, places, there := tensor.New(len(order)), make([]uint64, len(order)), make([]uint64, len(d))
	for k, i := range order {
		values.Data[k], places[k], there[i] = float32(d[i]), uint64(i), 1
	}

	words := pack(places, placeBits(len(d)))
	if mapped(len(d), len(order)) {
		words = pack(there, 1)
	}

	return tensor.Map{valuesName: values, bitsName: tensor.OfInts(words, len(words))}
}

func (c Codec) decodeLargest(values []float32, words []int64, n int) ([]float64, error) {
	places, err := decodePlaces(words, n, len(values))
	if err != nil {
		return nil, err
	}

	out := make([]float64, n)
	for j, i := range places {
		if i >= uint64(n) || j > 0 && i <= places[j-1] {
			return nil, errors.New("its indices are not sorted, or beyond the last number")
		}
		out[i] = float64(values[j])
	}

	return out, nil
}

func decodePlaces(words []int64, n, kept int) ([]uint64, error) {
	if !mapped(n, kept) {
		return unpack(words, kept, placeBits(n)), nil
	}

	var places []uint64
	for i, yes := range unpack(words, n, 1) {
		if yes == 1 {
			places = append(places, uint64(i))
		}
	}

	if len(places) != kept {
		return nil, fmt.Errorf("it has %d indices for %d values", len(places), kept)
	}

	return places, nil
}
