package compression

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// sent packs an update of two tensors, the first three numbers in a, from 0, and the others in b, from 1. It returns
// the update that the server reads from the message, and the error that stays on the client.
func sent(t *testing.T, c Codec, l *method.Local, d ...float32) (got, left []float32) {
	t.Helper()
	n := len(d) - 3
	l.Received = tensor.Map{"a": tensor.New(3), "b": tensor.New(n, 1)}
	up := method.Upload{Shared: tensor.Map{"a": tensor.Of(d[:3], 3), "b": tensor.New(n, 1)}}
	for i, v := range d[3:] {
		l.Received["b"].Data[i], up.Shared["b"].Data[i] = 1, 1+v
	}
	goldentest.NoError(t, c.Pack(l, &up))
	b, err := message.EncodeTensors(up.Packed)
	goldentest.NoError(t, err)
	packed, err := message.DecodeTensorsAs(b, c.Packed(l.Received))
	goldentest.NoError(t, err)
	read, err := c.Unpack(l.Received, packed)
	goldentest.NoError(t, err)
	for _, name := range read.Names() {
		if !slices.Equal(read[name].Data, up.Shared[name].Data) || !read[name].SameShape(up.Shared[name]) {
			t.Errorf("the server reads %v, the client thinks %v", read[name], up.Shared[name])
		}
		for i, v := range read[name].Data {
			got = append(got, v-l.Received[name].Data[i])
		}
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

// Codes of 40 bits cross the border of two words; codes of 32 bits fill a word. The expected words are put together by
// hand: the second code of 40 bits has its low 24 bits in the first word.
func TestPackCrossesWords(t *testing.T) {
	for _, c := range []struct {
		width int
		codes []uint64
		want  []int64
	}{
		{40, []uint64{0x8000000001, 0xabcdef0123}, []int64{-0x10fedc7fffffffff, 0xabcd}},
		{32, []uint64{1, 0x7fffffff}, []int64{0x7fffffff<<32 | 1}},
		{1, []uint64{1, 0, 1}, []int64{5}},
	} {
		words := pack(c.codes, c.width)
		if got := unpack(c.want, len(c.codes), c.width); !slices.Equal(words, c.want) || !slices.Equal(got, c.codes) {
			t.Errorf("width %d: %#x is packed as %#x, and %#x read as %#x", c.width, c.codes, words, c.want, got)
		}
	}
}

// At equal length, indices are a list: 2 of 4 numbers take two indices of 2 bits, 1 and 3.
func TestListOfTheLengthOfABitmap(t *testing.T) {
	packed, _ := Codec{Kind: TopK, Share: 0.5}.encode([]float64{1, -3, 0, 2}, random())
	if got := packed[bitsName].Ints; !slices.Equal(got, []int64{1 | 3<<2}) {
		t.Errorf("%b", got)
	}
}

// With two levels, 0.5 is level 1 exactly, and 0.75 lies in the middle of the levels 1 and 2.
func TestLevel(t *testing.T) {
	c := Codec{Kind: Quantise, Levels: 2}
	for _, l := range []struct {
		v, u float64
		want uint64
	}{{0.5, 0, 1}, {0.75, 0.49, 2}, {0.75, 0.5, 1}, {1.1, 0, 2}, {0, 0, 0}} {
		if got := c.level(l.v, l.u); got != l.want {
			t.Errorf("level(%v, %v) is %d, want %d", l.v, l.u, got, l.want)
		}
	}
}

// By hand, 1 + min(n/s², √n/s): for 16 numbers and 2 levels 1 + min(4, 2), for 4 numbers and 4 levels
// 1 + min(1/4, 1/2).
func TestShrink(t *testing.T) {
	for _, c := range []struct {
		Codec
		n    int
		want float64
	}{
		{Codec{Kind: Quantise, Levels: 2, Feedback: true}, 16, 3},
		{Codec{Kind: Quantise, Levels: 4, Feedback: true}, 4, 1.25},
		{Codec{Kind: Quantise, Levels: 4}, 4, 1},
		{Codec{Kind: Sign, Levels: 4, Feedback: true}, 4, 1},
	} {
		if got := c.shrink(c.n); got != c.want {
			t.Errorf("%+v divides the scale of %d numbers by %v, want %v", c.Codec, c.n, got, c.want)
		}
	}
}

// Pack refuses an upload whose parameters are not those that the client received.
func TestPackRefusesOtherParameters(t *testing.T) {
	for _, now := range []tensor.Map{{"b": tensor.New(2)}, {"a": tensor.New(3)},
		{"a": tensor.OfInts([]int64{1, 2}, 2)}} {
		l := local()
		l.Received = tensor.Map{"a": tensor.New(2)}
		err := Codec{Kind: Sign}.Pack(l, &method.Upload{Shared: now})
		goldentest.WantErrorOf(t, fmt.Sprint(now), err, "but was received as")
	}
}

// A trace has the random numbers of quantise, and none of the other kinds. A bucket of zeros draws none: its numbers,
// codes and scale are 0.
func TestPackRecordsTheRandomNumbers(t *testing.T) {
	for _, c := range []struct {
		Codec
		want []string
	}{{Codec{Kind: Quantise, Levels: 2, Bucket: 2}, []string{"compress/uniform"}}, {Codec{Kind: Sign}, nil},
		{Codec{Kind: TopK, Share: 0.5}, nil}} {
		var got []string
		l := local()
		l.Draws = method.NewDraws(func(name string, _ *tensor.Tensor) { got = append(got, name) })
		l.Rand = l.Draws.Counted(random())
		if sent(t, c.Codec, l, 1, 2, 3, 4); !slices.Equal(got, c.want) || l.Draws.Unrecorded() != 0 {
			t.Errorf("%s records %v and leaves out %d", c.Kind, got, l.Draws.Unrecorded())
		}
	}
	packed, drawn := Codec{Kind: Quantise, Levels: 2, Bucket: 2}.encode([]float64{0, 0, 3, 4}, random())
	first := random().Float64()
	if d := drawn.Data; d[0] != 0 || d[1] != 0 || d[2] != float32(first) || packed[bitsName].Ints[0]&63 != 0 ||
		!slices.Equal(packed[valuesName].Data, []float32{0, 5}) {
		t.Errorf("drawn %v, packed %v", d, packed)
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
		goldentest.NoError(t, err)
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
		{Codec{Kind: Sign, Levels: 7, Bucket: 512}, 128*8 + 16*4}, // Levels has no effect
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
		goldentest.WantError(t, err, say)
	}
}
