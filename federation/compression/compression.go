package compression

import (
	"fmt"
	"math"
	"math/rand/v2"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Kinds of compression. Package methods names their sources.
const (
	TopK     = "top-k"
	Sign     = "sign"
	Quantise = "quantise"
)

// Codec implements method.Codec. It concatenates the numbers of all tensors in the order of their names. A trace
// records the random numbers of quantise as compress/uniform.
type Codec struct {
	Kind     string
	Share    float64 // share of the numbers that top-k sends
	Levels   int     // number of levels of quantise above 0
	Bucket   int     // numbers that share a scale, in sign and quantise; 0: all
	Feedback bool    // adds the error of an update to the client's next update
}

// memory is the prefix of the remaining errors in a client's state.
const memory = "ef/e"

// Tensors of a packed upload, of one axis each.
const (
	valuesName = "values" // float32: the numbers of top-k, or the scale of each bucket
	bitsName   = "bits"   // int64, see pack: the indices of top-k, or the code of each number
)

// Pack implements method.Codec.
func (c Codec) Pack(local *method.Local, up *method.Upload) error {
	names := up.Shared.Names()
	var update []float64
	for _, name := range names {
		old, now := local.Received[name], up.Shared[name]
		if old == nil || !old.SameShape(now) || now.IsInt() {
			return fmt.Errorf("compression: parameter %s is %v, but was received as %v", name, now, old)
		}
		e := local.State[memory+"/"+name]
		for i, v := range now.Data {
			update = append(update, float64(v)-float64(old.Data[i]))
			if c.Feedback && e != nil {
				update[len(update)-1] += float64(e.Data[i])
			}
		}
	}

	local.Draws.WithoutRecording(func() {
		var drawn *tensor.Tensor
		if up.Packed, drawn = c.encode(update, local.Rand); drawn != nil {
			local.Draws.Record("compress/uniform", drawn)
		}
	})

	sent, err := c.decode(up.Packed, len(update))
	if err != nil {
		return err
	}

	up.Shared = moved(local.Received, sent)
	if !c.Feedback {
		return nil
	}

	at := 0
	for _, name := range names {
		e := tensor.New(up.Shared[name].Shape...)
		for i := range e.Data {
			e.Data[i] = float32(update[at] - sent[at])
			at++
		}
		local.State[memory+"/"+name] = e
	}

	return nil
}

// Packed implements method.Codec.
func (c Codec) Packed(received tensor.Map) tensor.Specs { return c.forms(received.Count()) }

// Unpack implements method.Codec.
func (c Codec) Unpack(received, packed tensor.Map) (tensor.Map, error) {
	d, err := c.decode(packed, received.Count())
	if err != nil {
		return nil, err
	}
	return moved(received, d), nil
}

// moved returns old plus an update.
func moved(old tensor.Map, d []float64) tensor.Map {
	out := tensor.Map{}
	for _, name := range old.Names() {
		t := tensor.New(old[name].Shape...)
		for i, v := range old[name].Data {
			t.Data[i] = float32(float64(v) + d[i])
		}
		out[name], d = t, d[t.Len():]
	}

	return out
}

func (c Codec) encode(d []float64, r *rand.Rand) (packed tensor.Map, drawn *tensor.Tensor) {
	if c.Kind == TopK {
		return c.encodeLargest(d), nil
	}
	return c.encodeLevels(d, r)
}

// decode reads an update of n numbers. Another form than encode's is an error; bits that no number uses are ignored.
func (c Codec) decode(packed tensor.Map, n int) ([]float64, error) {
	if err := c.forms(n).Check(tensor.SpecsOf(packed)); err != nil {
		return nil, err
	}

	values, words := packed[valuesName].Data, packed[bitsName].Ints
	if c.Kind == TopK {
		return c.decodeLargest(values, words, n)
	}

	return c.decodeLevels(values, words, n)
}

// forms returns the forms of an encoded update of n numbers.
func (c Codec) forms(n int) tensor.Specs {
	values, bits := 0, n*c.codeBits()
	if c.Kind == TopK {
		values, bits = c.kept(n), n
		if !mapped(n, values) {
			bits = values * placeBits(n)
		}
	} else {
		for range c.buckets(n) {
			values++
		}
	}

	return tensor.Specs{{Name: valuesName, Shape: []int{values}},
		{Name: bitsName, Int: true, Shape: []int{words(bits)}}}
}

// kept returns how many of n numbers top-k sends.
func (c Codec) kept(n int) int { return min(n, int(math.Ceil(c.Share*float64(n)-1e-9))) }
