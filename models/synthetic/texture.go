package synthetic

import "math"

// texture is a repeating pattern in the plane. at is positive inside the second colour and negative outside; its
// magnitude is about the distance to the border in periods, which allows soft edges.
type texture struct {
	name      string
	adjective string // of an object filled with it
	at        func(u, v float64) float64
}

// wave is 0.25 in the middle of a band and -0.25 between bands, with period 1.
func wave(u float64) float64 {
	u -= math.Floor(u)
	return 0.25 - math.Abs(u-0.5)
}

// saw is a triangle wave between 0 and 1 with period 1.
func saw(u float64) float64 {
	u -= math.Floor(u)
	return math.Abs(2*u - 1)
}

var textures = []texture{
	{"stripes", "striped", func(u, _ float64) float64 { return wave(u) }},
	{"dots", "dotted", func(u, v float64) float64 {
		return 0.3 - math.Hypot(u-math.Floor(u)-0.5, v-math.Floor(v)-0.5)
	}},
	{"checks", "checked", func(u, v float64) float64 {
		a, b := wave(u), wave(v)
		if a*b > 0 {
			return min(math.Abs(a), math.Abs(b))
		}
		return -min(math.Abs(a), math.Abs(b))
	}},
	{"zigzag", "zigzag", func(u, v float64) float64 { return wave(u + 0.8*saw(v*0.8)) }},
	{"waves", "wavy", func(u, v float64) float64 { return wave(u + 0.3*math.Sin(v*4)) }},
	{"bricks", "brick-patterned", func(u, v float64) float64 {
		row := math.Floor(v)
		x := u/2 + row/2
		return min(edge(v)-0.12, 2*edge(x)-0.12)
	}},
	{"grid", "gridded", func(u, v float64) float64 { return 0.14 - min(edge(u), edge(v)) }},
	{"speckles", "speckled", func(u, v float64) float64 {
		i, j := math.Floor(u*2), math.Floor(v*2)
		h := hash2(uint64(int64(i)), uint64(int64(j)))
		if h%5 > 1 {
			return -0.5
		}
		x, y := float64(h>>8&255)/255*0.4+0.3, float64(h>>16&255)/255*0.4+0.3
		return 0.17 - math.Hypot(u*2-i-x, v*2-j-y)/2
	}},
}

// edge returns the distance to the nearest whole number.
func edge(u float64) float64 { return math.Abs(u - math.Round(u)) }

// hash2 mixes two numbers (the finaliser of SplitMix64, Steele, Lea and Flood 2014).
func hash2(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b*0xd1b54a32d192ed03 + 0x632be59bd9b4e019
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// weave is a texture in pixel coordinates.
type weave struct {
	texture
	cos, sin float64 // of its direction, divided by the period
	du, dv   float64
	sharp    float64 // period in pixels, which converts periods to coverage
}

func (w weave) level(x, y int) int32 {
	if w.at == nil {
		return 0
	}
	fx, fy := float64(x), float64(y)
	return int32(256 * min(1, max(0, 0.5+w.sharp*w.at(w.cos*fx+w.sin*fy+w.du, w.cos*fy-w.sin*fx+w.dv))))
}
