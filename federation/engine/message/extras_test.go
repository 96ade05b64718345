package message_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// A message has exactly the declared extras.
func TestCheckExtras(t *testing.T) {
	declared := []method.Extra{{Name: "mean", Shape: []int{-6, 2}}, {Name: "n", Shape: []int{2, 1}, Counts: true}}
	counts := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v), 1) }
	for say, got := range map[string]tensor.Map{
		"":                     {"mean": tensor.Of([]float32{-1, .5}, 1, 2), "n": counts(0, 7)},
		"mean is missing":      {"n": counts(3, 4)},
		"mean is float32[5 3]": {"mean": tensor.New(5, 3), "n": counts(3, 4)},
		"mean is float32[7 2]": {"mean": tensor.New(7, 2), "n": counts(3, 4)},
		"mean is float32[2]":   {"mean": tensor.New(2), "n": counts(3, 4)},
		"mean is int64[1 2]":   {"mean": tensor.OfInts([]int64{1, 2}, 1, 2), "n": counts(3, 4)},
		"counts 8 examples":    {"mean": tensor.New(5, 2), "n": counts(4, 4)},
		"counts -1 examples":   {"mean": tensor.New(5, 2), "n": counts(-1, 4)},
		"counts 0.5":           {"mean": tensor.New(5, 2), "n": counts(0.5, 4)},
		"counts NaN":           {"mean": tensor.New(5, 2), "n": counts(float32(math.NaN()), 4)},
		"counts +Inf":          {"mean": tensor.New(5, 2), "n": counts(float32(math.Inf(1)), 4)},
		`the tensor "more"`:    {"mean": tensor.New(5, 2), "n": counts(3, 4), "more": tensor.New(1)},
	} {
		err := message.CheckExtras(declared, got, 7)
		if (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", say, err)
		}
	}
}
