package synthetic

import (
	"math/rand/v2"
)

// rgb is a colour with channels 0..255; intermediate values may leave that range until they are clamped.
type rgb [3]int32

type namedColour struct {
	name  string
	value rgb
}

// palette lists the colours that captions name.
var palette = []namedColour{
	{"red", rgb{214, 40, 40}}, {"orange", rgb{240, 130, 30}}, {"yellow", rgb{240, 208, 50}},
	{"green", rgb{50, 160, 70}}, {"cyan", rgb{50, 190, 200}}, {"blue", rgb{45, 85, 205}},
	{"purple", rgb{130, 60, 170}}, {"pink", rgb{240, 130, 175}}, {"brown", rgb{125, 80, 45}},
	{"white", rgb{240, 240, 240}}, {"black", rgb{35, 35, 38}}, {"gray", rgb{130, 132, 136}},
}

func clamp(v int32) uint8 { return uint8(min(255, max(0, v))) }

// mix returns a + (b-a)*t/256.
func mix(a, b rgb, t int32) rgb {
	for i := range a {
		a[i] += (b[i] - a[i]) * t >> 8
	}
	return a
}

// gain multiplies by g/256.
func (c rgb) gain(g int32) rgb {
	for i := range c {
		c[i] = c[i] * g >> 8
	}
	return c
}

// jitter changes every channel by up to d.
func (c rgb) jitter(rng *rand.Rand, d int32) rgb {
	for i := range c {
		c[i] = min(255, max(0, c[i]+rng.Int32N(2*d+1)-d))
	}
	return c
}

func (c rgb) luma() int32 { return (c[0]*77 + c[1]*151 + c[2]*28) >> 8 }

// apart returns how distinguishable two colours are: the difference of luma plus a share of the difference of the
// channels.
func apart(a, b rgb) int32 {
	d := abs(a.luma() - b.luma())
	for i := range a {
		d += abs(a[i]-b[i]) / 6
	}
	return d
}

func abs(v int32) int32 { return max(v, -v) }

// against draws a palette colour that contrasts with all of others; if none of twenty draws does, it returns the best.
func against(rng *rand.Rand, contrast int32, others ...rgb) namedColour {
	best, most := palette[0], int32(-1)
	for range 20 {
		c := palette[rng.IntN(len(palette))]
		least := int32(1 << 20)
		for _, o := range others {
			least = min(least, apart(c.value, o))
		}
		if least > most {
			best, most = c, least
		}
		if most >= contrast {
			break
		}
	}

	return best
}
