package calibration

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// calibrated is a client's training data under GGTPC: its own rows and, after them, prototypes of other domains.
type calibrated struct {
	method.Data
	method      GGTPC
	axes, sizes *tensor.Tensor // nil for no noise
	places      *tensor.Tensor // prototypes [P,D], or nil
	class       []int64        // of all rows
	upTo        []float64      // sums of the rows' weights, or nil where nothing is sampled
}

func (m GGTPC) calibrate(data method.Data, prior tensor.Map) *calibrated {
	wrapped := &calibrated{Data: data, method: m, axes: prior[ggtpcAxes], sizes: prior[ggtpcSizes],
		places: prior[ggtpcPlaces], class: slices.Clone(data.Labels())}
	count, most := map[int64]float64{}, 0.0
	for _, y := range wrapped.class {
		count[y]++
		most = max(most, count[y])
	}

	if label := prior[ggtpcLabels]; label != nil {
		wrapped.class = append(wrapped.class, label.Ints...)
	}

	if m.Sampling == "none" {
		return wrapped
	}

	sum := 0.0
	for i, y := range wrapped.class {
		w := most / count[y] // of the class, eq. 7
		switch {
		case i >= data.Len():
			w = most
		case m.Sampling == "class":
			w /= count[y]
		}
		sum += w
		wrapped.upTo = append(wrapped.upTo, sum)
	}

	return wrapped
}

func (c *calibrated) Len() int { return len(c.class) }

func (c *calibrated) Labels() []int64 { return c.class }

// Order returns as many rows as the client has: sampled, or in the base method's order with prototypes among them.
func (c *calibrated) Order(r *rand.Rand) []int {
	if c.upTo == nil {
		return c.mixed(r)
	}

	out := make([]int, c.Data.Len())
	for i := range out {
		at := r.Float64() * c.upTo[len(c.upTo)-1]
		out[i], _ = slices.BinarySearchFunc(c.upTo, at, func(sum, at float64) int {
			if sum > at {
				return 1
			}
			return -1
		})
	}

	return out
}

// mixed sorts all rows by random keys when there are prototypes, and takes as many as the client has.
func (c *calibrated) mixed(random *rand.Rand) []int {
	out := c.Data.Order(random)
	if c.Len() == c.Data.Len() {
		return out
	}

	for i := c.Data.Len(); i < c.Len(); i++ {
		out = append(out, i)
	}

	key := make([]float64, c.Len())
	for i := range key {
		key[i] = random.Float64()
	}

	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(key[a], key[b]) })
	return out[:c.Data.Len()]
}

// Batch returns rows with noise along the axes of their class.
func (c *calibrated) Batch(rows []int, random *rand.Rand, also ...string) (tensor.Map, error) {
	own := slices.Clone(rows)
	for i, row := range rows {
		if row >= c.Data.Len() {
			own[i] = 0 // its place is taken below
			for _, what := range also {
				if what != method.PatchesInput {
					return nil, fmt.Errorf("option prototypes: the base method reads %s, which prototypes do not "+
						"have; set it to false", what)
				}
			}
		}
	}

	batch, err := c.Data.Batch(own, random, also...)
	if err != nil {
		return nil, err
	}

	image, patches := batch[method.ImageInput], batch[method.PatchesInput]
	for i, row := range rows {
		if row < c.Data.Len() {
			continue
		}
		copy(image.Row(i).Data, c.places.Row(row-c.Data.Len()).Data)
		if c.method.Renormalise {
			lengthen(image.Row(i).Data, 1)
		}
		batch[method.LabelInput].Ints[i] = c.class[row]
	}

	clean := image.Clone()
	if c.method.Strength > 0 && slices.Contains(also, method.PixelsInput) {
		batch[noiseInput.String()] = tensor.New(image.Shape...)
	}

	if c.axes != nil && c.method.Strength > 0 {
		batch["draw/clean"] = clean
		batch["draw/eps"] = tensor.New(len(rows), c.sizes.Shape[1])
		c.spread(rows, batch, random)
	}

	for i, row := range rows { // a prototype's patches
		for p := 0; row >= c.Data.Len() && patches != nil && p < patches.Shape[1]; p++ {
			copy(patches.Row(i).Row(p).Data, image.Row(i).Data)
		}
	}

	return batch, nil
}

// spread draws eps and adds the noise of eq. 6.
func (c *calibrated) spread(rows []int, b tensor.Map, r *rand.Rand) {
	image, patches := b[method.ImageInput], b[method.PatchesInput]
	eps, noise := b["draw/eps"], b[noiseInput.String()]
	for i := range eps.Data {
		eps.Data[i] = float32(r.NormFloat64())
	}

	for i, row := range rows {
		d := c.noise(c.class[row], eps.Row(i).Data)
		move(image.Row(i).Data, d, 1, c.method.Renormalise)
		if noise != nil {
			move(noise.Row(i).Data, d, 0, false)
		}
		for p := 0; patches != nil && p < patches.Shape[1]; p++ {
			at := patches.Row(i).Row(p)
			move(at.Data, d, at.Norm(), true)
		}
	}
}

// noise returns Σ_m eps_m √λ_m u_m of a class, times strength.
func (c *calibrated) noise(class int64, eps []float32) []float64 {
	axes, sizes := c.axes.Row(int(class)), c.sizes.Row(int(class)).Data
	shift := make([]float64, axes.Shape[1])
	for m, e := range eps {
		w := c.method.Strength * float64(e) * math.Sqrt(float64(sizes[m]))
		if w == 0 {
			continue
		}
		for j, u := range axes.Row(m).Data {
			shift[j] += w * float64(u)
		}
	}

	return shift
}

// move adds d to x and, if asked, scales the sum to a length.
func move(x []float32, d []float64, length float64, keep bool) {
	for j := range x {
		x[j] = float32(float64(x[j]) + d[j])
	}
	if keep {
		lengthen(x, length)
	}
}

// lengthen scales x to a length; zeros stay zeros.
func lengthen(x []float32, length float64) {
	norm := tensor.Of(x, len(x)).Norm()
	if norm == 0 {
		return
	}
	for j := range x {
		x[j] = float32(float64(x[j]) * length / norm)
	}
}
