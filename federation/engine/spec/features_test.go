package spec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// numbered returns a view of n examples; row i is [first+i].
func numbered(first float32, n int) spec.RowReader {
	t := tensor.New(n, 1)
	for i := range t.Data {
		t.Data[i] = first + float32(i)
	}
	return spec.InMemory{Tensor: t}
}

type failing struct{}

func (failing) Read([]int) (*tensor.Tensor, error) { return nil, errors.New("no rows") }

func batchOf(t *testing.T, f *spec.Features, rows []int, also ...string) string {
	t.Helper()
	m, err := f.Batch(rows, rand.New(rand.NewPCG(1, 2)), also...)
	goldentest.NoError(t, err)
	out := fmt.Sprint("label ", m["label"].Ints)
	for _, name := range m.Names() {
		if name != "label" {
			out += fmt.Sprint(" ", name, " ", m[name].Data)
		}
	}
	return out
}

// Examples are picked and replaced by index; each input's rows follow.
func TestFeatures(t *testing.T) {
	f := &spec.Features{Class: []int64{0, 1, 2, 3}}
	f.Add(method.ImageInput, []spec.RowReader{numbered(0, 4)})
	f.Add(method.PatchesInput, []spec.RowReader{numbered(10, 4)})
	f.Add(method.TokensInput, []spec.RowReader{numbered(20, 4)})
	f.Add(method.PixelsInput, []spec.RowReader{numbered(30, 4)})
	picked := f.Pick([]int{3, 1, 1}).Pick([]int{0, 2})
	for _, c := range []struct {
		of   *spec.Features
		rows []int
		also []string
		want string
	}{
		{f, []int{2, 0}, nil, "label [2 0] image [2 0]"},
		{f, []int{2}, spec.LargeInputs, "label [2] image [2] patches [12] pixels [32] tokens [22]"},
		{f, []int{1}, []string{method.TokensInput}, "label [1] image [1] tokens [21]"},
		{picked, []int{0, 1}, []string{method.PixelsInput}, "label [3 1] image [3 1] pixels [33 31]"},
		// of the picked examples 3, 1 and 1 the first and the last are replaced by 6 and 5 of the others
		{f.Pick([]int{3, 1, 1}).Replace([]int{0, 2}, (&spec.Features{Views: []spec.RowReader{numbered(5, 2)},
			Patches: []spec.RowReader{numbered(15, 2)}, Tokens: []spec.RowReader{numbered(25, 2)},
			Pixels: []spec.RowReader{numbered(35, 2)}, Class: []int64{5, 6}}).Pick([]int{1, 0})),
			[]int{0, 1, 2}, []string{method.PatchesInput}, "label [6 1 5] image [6 1 5] patches [16 11 15]"},
		{f.Replace([]int{1}, &spec.Features{Views: []spec.RowReader{numbered(5, 1)},
			Patches: []spec.RowReader{numbered(15, 1)}, Tokens: []spec.RowReader{numbered(25, 1)},
			Pixels: []spec.RowReader{numbered(35, 1)}, Class: []int64{5}}),
			[]int{0, 1, 2, 3}, []string{method.TokensInput, method.PixelsInput},
			"label [0 5 2 3] image [0 5 2 3] pixels [30 35 32 33] tokens [20 25 22 23]"},
	} {
		if got := batchOf(t, c.of, c.rows, c.also...); got != c.want {
			t.Errorf("rows %v: %s, want %s", c.rows, got, c.want)
		}
	}
	if f.Len() != 4 || picked.Len() != 2 || f.Class[1] != 1 {
		t.Error(f.Class, picked.Class)
	}
	order := f.Order(rand.New(rand.NewPCG(1, 2)))
	if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2, 3}) {
		t.Error(order)
	}
	if a, b := f.Identity(), picked.Identity(); a == 0 || a == b || f.Identity() != a {
		t.Error(a, b)
	}
	f.Views = []spec.RowReader{failing{}}
	if _, err := f.Batch([]int{0}, nil); err == nil || err.Error() != "image: no rows" {
		t.Error(err)
	}
	f.Views = []spec.RowReader{failing{}, failing{}}
	if _, err := f.Batch([]int{0}, rand.New(rand.NewPCG(1, 2))); err == nil || err.Error() != "image: no rows" {
		t.Error(err)
	}
}

// Each row comes from a view of its own, the same one for all inputs, and both views are drawn.
func TestViewsOfRows(t *testing.T) {
	f := &spec.Features{Views: []spec.RowReader{numbered(0, 50), numbered(100, 50)},
		Tokens: []spec.RowReader{numbered(1000, 50), numbered(1100, 50)}, Class: make([]int64, 50)}
	rows := make([]int, 50)
	for i := range rows {
		rows[i] = 49 - i
	}
	m, err := f.Batch(rows, rand.New(rand.NewPCG(1, 2)), method.TokensInput)
	goldentest.NoError(t, err)
	second := 0
	for i, v := range m["image"].Data {
		if row := float32(49 - i); v == row+100 {
			second++
		} else if v != row {
			t.Errorf("row %v is %v", row, v)
		}
		if m["tokens"].Data[i] != v+1000 {
			t.Errorf("an image %v has tokens %v", v, m["tokens"].Data[i])
		}
	}
	if second < 10 || second > 40 {
		t.Errorf("%d of 50 rows are of the second view", second)
	}
}
