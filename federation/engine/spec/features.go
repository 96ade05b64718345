package spec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// Features are examples as unit rows of one backbone: the usual method.Data.
type Features struct {
	Views   []RowReader // image features [.,D], one per augmented view; a batch draws a view for each row
	Patches []RowReader // [.,M,D], likewise; nil where no method asks for them
	Tokens  []RowReader // [.,N,v], likewise
	Pixels  []RowReader // [.,3,S,S], likewise
	At      []int       // rows of these that the N examples are; nil for 0 to N-1
	Class   []int64     // [N]

	number atomic.Uint64 // of id
}

var lastFeatures atomic.Uint64

// Identity returns a number that no other Features of this process has.
func (f *Features) Identity() uint64 {
	if f.number.Load() == 0 {
		f.number.CompareAndSwap(0, lastFeatures.Add(1))
	}
	return f.number.Load()
}

// Pick returns some of the examples, in that order. It does not copy their rows.
func (f *Features) Pick(index []int) *Features {
	p := &Features{Views: f.Views, Patches: f.Patches, Tokens: f.Tokens, Pixels: f.Pixels, At: slices.Clone(index),
		Class: make([]int64, len(index))}
	for i, j := range index {
		p.Class[i] = f.Class[j]
		if f.At != nil {
			p.At[i] = f.At[j]
		}
	}

	return p
}

// RowReader holds rows of features, in memory (InMemory) or in a file. Several clients may share one.
type RowReader interface {
	// Read returns rows by their index, in that order.
	Read(index []int) (*tensor.Tensor, error)
}

// InMemory are rows in memory.
type InMemory struct{ *tensor.Tensor }

func (h InMemory) Read(index []int) (*tensor.Tensor, error) { return h.Rows(index), nil }

// inputs returns the rows of each view by input.
func (f *Features) inputs() map[string]*[]RowReader {
	return map[string]*[]RowReader{method.ImageInput: &f.Views, method.PatchesInput: &f.Patches,
		method.TokensInput: &f.Tokens, method.PixelsInput: &f.Pixels}
}

// Add sets the rows of each view of an input: method.ImageInput or one of LargeInputs.
func (f *Features) Add(what string, rows []RowReader) { *f.inputs()[what] = rows }

func (f *Features) Len() int        { return len(f.Class) }
func (f *Features) Labels() []int64 { return f.Class }

// Order returns a random order that has each example once.
func (f *Features) Order(r *rand.Rand) []int { return r.Perm(len(f.Class)) }

// Batch draws one of the views for each row, where there are several; all inputs of a row are of that view. Of the
// other inputs than image and label it reads only those that also names.
func (f *Features) Batch(rows []int, r *rand.Rand, also ...string) (tensor.Map, error) {
	view := make([]int, len(rows))
	if len(f.Views) > 1 {
		for i := range rows {
			view[i] = r.IntN(len(f.Views))
		}
	}

	label := convert.Slice(rows, func(row int) int64 { return f.Class[row] })
	tensors := tensor.Map{method.LabelInput: tensor.OfInts(label, len(rows))}
	for name, from := range f.inputs() {
		if *from == nil || name != method.ImageInput && !slices.Contains(also, name) {
			continue
		}
		t, err := f.read(*from, rows, view)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tensors[name] = t
	}

	return tensors, nil
}

// read gathers rows, each from the view drawn for it.
func (f *Features) read(from []RowReader, rows, view []int) (*tensor.Tensor, error) {
	at := slices.Clone(rows)
	if f.At != nil {
		for i, row := range rows {
			at[i] = f.At[row]
		}
	}

	if len(from) == 1 {
		return from[0].Read(at)
	}

	parts := make([]*tensor.Tensor, len(rows))
	for i := range rows {
		t, err := from[view[i]].Read(at[i : i+1])
		if err != nil {
			return nil, err
		}
		parts[i] = t.Row(0)
	}

	return tensor.Stack(parts), nil
}

// Replace returns the same examples, with those of the given sorted indices replaced by all examples of another
// Features.
func (f *Features) Replace(index []int, by *Features) *Features {
	out := f.Pick(tensor.Indices(f.Len()))
	first := 0 // index of the other's first row, behind all of ours
	for _, at := range out.At {
		first = max(first, at+1)
	}

	for k, i := range index {
		out.At[i], out.Class[i] = first+k, by.Class[k]
		if by.At != nil {
			out.At[i] = first + by.At[k]
		}
	}

	others := by.inputs()
	for name, rows := range out.inputs() {
		other, joined := *others[name], slices.Clone(*rows)
		for i, own := range joined {
			joined[i] = twoRows{first, own, other[i]}
		}
		*rows = joined
	}

	return out
}

type twoRows struct {
	split         int // first index of the second reader
	first, second RowReader
}

func (r twoRows) Read(index []int) (*tensor.Tensor, error) {
	rows := make([]*tensor.Tensor, len(index))
	for i, at := range index {
		from := r.first
		if at >= r.split {
			from, at = r.second, at-r.split
		}
		t, err := from.Read([]int{at})
		if err != nil {
			return nil, err
		}
		rows[i] = t.Row(0)
	}

	return tensor.Stack(rows), nil
}
