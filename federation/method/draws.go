package method

import (
	"math/rand/v2"

	"promptfed/runtime/tensor"
)

// Draws records the random numbers of a method in a trace, and counts those that it did not record. A nil Draws records
// and counts nothing; the numbers drawn are the same.
type Draws struct {
	record          func(name string, t *tensor.Tensor)
	taken, recorded int // numbers of 64 bits
}

// NewDraws returns Draws that pass every value to record.
func NewDraws(record func(name string, t *tensor.Tensor)) *Draws { return &Draws{record: record} }

// RecordTo passes later values to another function.
func (d *Draws) RecordTo(record func(name string, t *tensor.Tensor)) { d.record = record }

// counted is a source whose numbers are counted.
type counted struct {
	rand.Source
	count *int
}

func (c counted) Uint64() uint64 {
	*c.count++
	return c.Source.Uint64()
}

// Counted returns r with its numbers counted; they are the same.
func (d *Draws) Counted(r *rand.Rand) *rand.Rand {
	if d == nil {
		return r
	}
	return rand.New(counted{r, &d.taken})
}

// Normal draws numbers of the standard normal distribution, and records them as a tensor of a shape.
func (d *Draws) Normal(r *rand.Rand, name string, shape ...int) []float64 {
	return d.draw(r.NormFloat64, name, shape)
}

// Uniform draws numbers from [0,1), and records them as a tensor of a shape.
func (d *Draws) Uniform(r *rand.Rand, name string, shape ...int) []float64 {
	return d.draw(r.Float64, name, shape)
}

func (d *Draws) draw(next func() float64, name string, shape []int) []float64 {
	out := make([]float64, tensor.Size(shape))
	d.WithoutRecording(func() {
		for i := range out {
			out[i] = next()
		}
	})

	if d != nil {
		t := tensor.New(shape...)
		for i, x := range out {
			t.Data[i] = float32(x)
		}
		d.Record(name, t)
	}

	return out
}

// Record passes a value to the trace that it would not have otherwise.
func (d *Draws) Record(name string, t *tensor.Tensor) {
	if d != nil && d.record != nil {
		d.record(name, t)
	}
}

// WithoutRecording calls do, whose random numbers the trace has in another form, such as the rows of a batch.
func (d *Draws) WithoutRecording(do func()) {
	if d == nil {
		do()
		return
	}
	unrecorded := d.Unrecorded()
	do()
	d.recorded = d.taken - unrecorded
}

// Count returns how many random numbers were drawn so far.
func (d *Draws) Count() int {
	if d == nil {
		return 0
	}
	return d.taken
}

// Unrecorded returns how many of them the trace lacks.
func (d *Draws) Unrecorded() int {
	if d == nil {
		return 0
	}
	return d.taken - d.recorded
}
