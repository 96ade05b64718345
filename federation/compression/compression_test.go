package compression

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// sent packs an update from 0 of two tensors, the first three numbers in a and the others in b. It returns the numbers
// that the server reads from the message, and the error that stays on the client.
func sent(t *testing.T, c Codec, l *method.Local, d ...float32) (got, left []float32) {
	t.Helper()
	n := len(d) - 3
	l.Received = tensor.Map{"a": tensor.New(3), "b": tensor.New(n, 1)}
	up := method.Upload{Shared: tensor.Map{"a": tensor.Of(d[:3], 3), "b": tensor.Of(d[3:], n, 1)}}
	if err := c.Pack(l, &up); err != nil {
		t.Fatal(err)
	}
	b, err := message.EncodeTensors(up.Packed)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := message.DecodeTensorsAs(b, c.Packed(l.Received))
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.Unpack(l.Received, packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range read.Names() {
		if !slices.Equal(read[name].Data, up.Shared[name].Data) || !read[name].SameShape(up.Shared[name]) {
			t.Errorf("the server reads %v, the client thinks %v", read[name], up.Shared[name])
		}
		got = append(got, read[name].Data...)
		if e := l.State[memory+"/"+name]; e != nil {
			left = append(left, e.Data...)
		}
	}
	return got, left
}

func local() *method.Local { return &method.Local{State: tensor.Map{}, Rand: random()} }

// By hand, for the update (1,-2,0, 4,-3): the two largest; signs times the mean 10/5 of absolute values, in buckets of
// 3 the means 3/3 and 7/2; one level of the norm √30, with no values other than 0 and ±√30.
func TestByHand(t *testing.T) {
	update := []float32{1, -2, 0, 4, -3}
	for _, c := range []struct {
		Codec
		want, left []float32
	}{
		{Codec{Kind: TopK, Share: 0.4}, []float32{0, 0, 0, 4, -3}, nil},
		// 1.5, rounded up
		{Codec{Kind: TopK, Share: 0.3, Feedback: true}, []float32{0, 0, 0, 4, -3}, []float32{1, -2, 0, 0, 0}},
		{Codec{Kind: TopK, Share: 0.8}, []float32{1, -2, 0, 4, -3}, nil},
		{Codec{Kind: Sign, Feedback: true}, []float32{2, -2, 2, 2, -2}, []float32{-1, 0, -2, 2, -1}},
		{Codec{Kind: Sign, Bucket: 3}, []float32{1, -1, 1, 3.5, -3.5}, nil},
	} {
		got, left := sent(t, c.Codec, local(), update...)
		if !slices.Equal(got, c.want) || !slices.Equal(left, c.left) {
			t.Errorf("%+v sends %v and keeps %v; by hand %v and %v", c.Codec, got, left, c.want, c.left)
		}
	}
	got, _ := sent(t, Codec{Kind: Quantise, Levels: 1}, local(), update...)
	for i, v := range got {
		if a := math.Abs(float64(v)); a != 0 && math.Abs(a-math.Sqrt(30)) > 1e-6 || v != 0 && v > 0 != (update[i] > 0) {
			t.Errorf("one level gives %v", got)
		}
	}
	if got, left := sent(t, Codec{Kind: TopK, Share: 0.5}, local(), 1, 1, 1, -1, 1); left != nil ||
		!slices.Equal(got, []float32{1, 1, 1, 0, 0}) {
		t.Errorf("of equal numbers the first are not sent: %v", got)
	}
}

// With feedback, the sum of all sent updates and the remaining error is the sum of all updates, for every kind.
func TestFeedback(t *testing.T) {
	for _, c := range []Codec{{Kind: TopK, Share: 0.25}, {Kind: Sign, Bucket: 4}, {Kind: Quantise, Levels: 3}} {
		c.Feedback = true
		l, r := local(), rand.New(rand.NewPCG(3, 4))
		want, have := make([]float64, 11), make([]float64, 11)
		var left []float32
		for range 20 {
			update := make([]float32, 11)
			for i := range update {
				update[i] = float32(r.NormFloat64())
				want[i] += float64(update[i])
			}
			var got []float32
			got, left = sent(t, c, l, update...)
			for i, v := range got {
				have[i] += float64(v)
			}
		}
		for i := range want {
			if math.Abs(have[i]+float64(left[i])-want[i]) > 1e-5 {
				t.Errorf("%s: %v sent and %v left of %v", c.Kind, have[i], left[i], want[i])
			}
			if a := math.Abs(float64(left[i])); a > 15 { // growing feedback would be far larger
				t.Errorf("%s: %v is left", c.Kind, left)
			}
		}
	}
}

// Quantised values are unbiased: their mean over 20,000 draws is exact within three standard errors, and their variance
// is at most the bound min(n/s², √n/s) times the square of the norm.
func TestQuantiseIsUnbiased(t *testing.T) {
	d := []float64{0.5, -0.1, 0.02, 0, 0.3, -0.7, 0.01}
	c := Codec{Kind: Quantise, Levels: 2}
	const draws = 20000
	mean, square, total := make([]float64, len(d)), make([]float64, len(d)), 0.0
	r := random()
	for range draws {
		packed, _ := c.encode(d, r)
		got, err := c.decode(packed, len(d))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			mean[i] += v / draws
			square[i] += v * v / draws
			total += (v - d[i]) * (v - d[i]) / draws
		}
	}
	norm2 := 0.0
	for i, v := range d {
		norm2 += v * v
		if e := 3*math.Sqrt(max(0, square[i]-mean[i]*mean[i])/draws) + 1e-6; math.Abs(mean[i]-v) > e {
			t.Errorf("number %d is %v on average, not %v (within %v)", i, mean[i], v, e)
		}
	}
	if bound := math.Min(7./4, math.Sqrt(7)/2) * norm2; total > bound {
		t.Errorf("variance %v, at most %v", total, bound)
	}
}

// A client with a zero update sends zeros.
func TestNothing(t *testing.T) {
	for _, c := range []Codec{{Kind: TopK, Share: 0.1}, {Kind: Sign, Bucket: 2}, {Kind: Quantise, Levels: 7, Bucket: 2,
		Feedback: true}} {
		got, _ := sent(t, c, local(), 0, 0, 0, 0, 0)
		if slices.ContainsFunc(got, func(v float32) bool { return v != 0 }) {
			t.Errorf("%s sends %v", c.Kind, got)
		}
	}
}

// For 8192 numbers, 16 tokens of width 512: 5 % are 410 values and 410 indices of 13 bits, 84 words; for the 820 values
// of 10 % a bitmap is shorter, 128 words; signs are 128 words and 16 scales; four bits are 512 words and 16 scales. The
// header of safetensors comes in addition.
func TestBytes(t *testing.T) {
	d := make([]float64, 8192)
	r := random()
	for i := range d {
		d[i] = r.NormFloat64()
	}
	for _, c := range []struct {
		Codec
		want int
	}{
		{Codec{Kind: TopK, Share: 0.05}, 410*4 + 84*8},
		{Codec{Kind: TopK, Share: 0.1}, 820*4 + 128*8},
		{Codec{Kind: Sign, Bucket: 512}, 128*8 + 16*4},
		{Codec{Kind: Quantise, Levels: 7, Bucket: 512}, 512*8 + 16*4},
	} {
		packed, _ := c.encode(d, r)
		size := message.EncodedSize(packed)
		if got := packed.Bytes(); got != c.want || size-got > 200 {
			t.Errorf("%+v takes %d bytes, by hand %d, and %d in a message", c.Codec, got, c.want, size)
		}
		_, most, err := message.MaxEncodedSize(c.Packed(tensor.Map{"a": tensor.New(2, 4000), "b": tensor.New(192)}))
		if err != nil || int(most) != size {
			t.Errorf("%+v: the message has %d bytes and may have %d, %v", c.Codec, size, most, err)
		}
	}
}

// Every message is refused in one line or decoded to finite or infinite numbers; nothing panics.
func TestHostile(t *testing.T) {
	values := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
	words := func(v ...int64) *tensor.Tensor { return tensor.OfInts(v, len(v)) }
	top, sign := Codec{Kind: TopK, Share: 0.1}, Codec{Kind: Sign, Bucket: 20}
	levels := Codec{Kind: Quantise, Levels: 2}
	for say, c := range map[string]struct {
		Codec
		packed tensor.Map
	}{
		"values is missing":      {top, tensor.Map{}},
		"float32[1 3] and must":  {top, tensor.Map{"values": tensor.New(1, 3), "bits": words(0)}},
		"float32[1] and must":    {top, tensor.Map{"values": values(1, 2, 3), "bits": values(1)}},
		"be float32[3]":          {top, tensor.Map{"values": values(1, 2), "bits": words(0)}},
		"be int64[1]":            {top, tensor.Map{"values": values(1, 2, 3), "bits": words(0, 0)}},
		"not sorted":             {top, tensor.Map{"values": values(1, 2, 3), "bits": words(0)}},
		"beyond the last number": {top, tensor.Map{"values": values(1, 2, 3), "bits": words(30<<10 | 1<<5)}},
		"float32[1] and must be": {sign, tensor.Map{"values": values(1), "bits": words(0)}},
		"scale of at least 0":    {sign, tensor.Map{"values": values(1, -1), "bits": words(0)}},
		"float32[3] and must":    {sign, tensor.Map{"values": values(1, 1, 1), "bits": words(0)}},
		"the level 3":            {levels, tensor.Map{"values": values(1), "bits": words(6, 0)}},
		"it has 0 indices": {Codec{Kind: TopK, Share: 0.5}, tensor.Map{"values": tensor.New(15),
			"bits": words(0)}},
	} {
		_, err := c.Unpack(tensor.Map{"ctx": tensor.New(30)}, c.packed)
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", say, err)
		}
	}
}
