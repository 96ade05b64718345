package pyrand

import "math"

// CPython and NumPy take log, exp and pow from the C library. Go's own differ from it in the last bit in 7 to 50 % of
// calls, and the last bit of a Dirichlet draw decides whether a cumulated share of a partition is 1 or just below.
// So these follow the algorithm that glibc (since 2.28), musl and others use, the ARM optimized routines (MIT licence):
// a table of 128 points, a short polynomial, and a two-part result. The order of fused multiply-adds is glibc's on x86-64
// with FMA, whose results the tests hold bit for bit. For arguments that the generators never produce (negative, zero,
// infinite, not a number) they are math's.

func number(x uint64) float64 { return math.Float64frombits(x) }

const (
	ln2Hi, ln2Lo = 0x1.62e42fefa3800p-1, 0x1.ef35793c76730p-45
	one          = 0x3ff0000000000000
)

var (
	logPoly = [...]float64{-0x1.0000000000001p-1, 0x1.555555551305bp-2, -0x1.fffffffeb4590p-3, 0x1.999b324f10111p-3,
		-0x1.55575e506c89fp-3}
	logNear = [...]float64{-0x1p-1, 0x1.5555555555577p-2, -0x1.ffffffffffdcbp-3, 0x1.999999995dd0cp-3,
		-0x1.55555556745a7p-3, 0x1.24924a344de30p-3, -0x1.fffffa4423d65p-4, 0x1.c7184282ad6cap-4, -0x1.999eb43b068ffp-4,
		0x1.78182f7afd085p-4, -0x1.5521375d145cdp-4}
	powPoly = [...]float64{-0x1p-1, -0x1.5555555555560p-1, 0x1.0000000000006p-1, 0x1.999999959554ep-1,
		-0x1.555555529a47ap-1, -0x1.2495b9b4845e9p+0, 0x1.0002b8b263fc3p+0}
	expPoly = [...]float64{0x1.ffffffffffdbdp-2, 0x1.555555555543cp-3, 0x1.55555cf172b91p-5, 0x1.1111167a4d017p-7}
)

// split writes x = 2^k z with z near 1 and returns the table interval of z.
func split(ix, off uint64) (k, z float64, i uint64) {
	t := ix - off
	return float64(int64(t) >> 52), number(ix - t&(0xfff<<52)), t >> 45 & 127
}

// positive are the bits of x, a subnormal scaled up so that its exponent field is its exponent.
func positive(x float64) uint64 {
	ix := math.Float64bits(x)
	if ix>>52 == 0 {
		return math.Float64bits(x*0x1p52) - 52<<52
	}
	return ix
}

// log is the natural logarithm.
func log(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log(x)
	}
	if x >= 1-0x1p-4 && x < 1+0x1.09p-4 {
		return logNearOne(x - 1)
	}
	k, z, i := split(positive(x), 0x3fe6000000000000)
	r := math.FMA(z, number(logTable[i][0]), -1)
	w := math.FMA(k, ln2Hi, number(logTable[i][1]))
	hi := r + w
	r2 := float64(r * r)
	lo := math.FMA(k, ln2Lo, w-hi+r)
	lo = math.FMA(r2, logPoly[0], lo)
	q := math.FMA(math.FMA(r, logPoly[4], logPoly[3]), r2, math.FMA(r, logPoly[2], logPoly[1]))
	return math.FMA(r*r2, q, lo) + hi
}

// logNearOne is log(1+r) for small r.
func logNearOne(r float64) float64 {
	if r == 0 {
		return 0
	}
	b := &logNear
	r2 := float64(r * r)
	r3 := r * r2
	p := math.FMA(r3, b[10], math.FMA(r2, b[9], math.FMA(r, b[8], b[7])))
	p = math.FMA(p, r3, math.FMA(r2, b[6], math.FMA(r, b[5], b[4])))
	p = math.FMA(p, r3, math.FMA(r2, b[3], math.FMA(r, b[2], b[1])))
	rhi := math.FMA(-0x1p27, r, math.FMA(r, 0x1p27, r))
	square := float64(rhi * rhi)
	hi := math.FMA(square, b[0], r)
	lo := math.FMA(square, b[0], r-hi)
	lo = math.FMA(b[0]*(r-rhi), r+rhi, lo)
	return hi + math.FMA(p, r3, lo)
}

// exp is e^x.
func exp(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return math.Exp(x)
	}
	return expTwo(x, 0)
}

// expTwo is e^(x+rest), rest being far smaller than x.
func expTwo(x, rest float64) float64 {
	top := math.Float64bits(x) >> 52 & 0x7ff
	extreme := top > 0x407 // |x| of 512 and more: the scale alone may overflow
	switch {
	case top < 0x3c9: // |x| < 2^-54
		return 1 + x
	case top > 0x408:
		if x < 0 {
			return 0
		}
		return math.Inf(1)
	}
	const shift = 0x1.8p52
	k := math.FMA(x, 0x1.71547652b82fep+7, shift)
	ki := math.Float64bits(k)
	k -= shift
	r := math.FMA(k, -0x1.62e42fefa0000p-8, x)
	r = math.FMA(k, -0x1.cf79abc9e3b3ap-47, r)
	r += rest
	entry := &expTable[ki&127]
	r2 := float64(r * r)
	t := math.FMA(math.FMA(r, expPoly[1], expPoly[0]), r2, r+number(entry[0]))
	t = math.FMA(math.FMA(r, expPoly[3], expPoly[2]), r2*r2, t)
	scale := entry[1] + ki<<45
	if extreme {
		return expExtreme(t, scale, ki)
	}
	s := number(scale)
	return math.FMA(s, t, s)
}

// expExtreme is scale (1+t) where scale may lie outside the exponents of float64, rounded once.
func expExtreme(t float64, scale, ki uint64) float64 {
	if ki&0x80000000 == 0 {
		s := number(scale - 1009<<52)
		return 0x1p1009 * math.FMA(s, t, s)
	}
	s := number(scale + 1022<<52)
	product := float64(s * t)
	y := s + product
	if y < 1 { // a subnormal result: round to its precision here
		lo := s - y + product
		hi := 1 + y
		y = 1 - hi + y + lo + hi - 1
	}
	return 0x1p-1022 * y
}

// pow is x^y.
func pow(x, y float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) || math.IsNaN(y) || math.IsInf(y, 0) || x == 1 {
		return math.Pow(x, y)
	}
	if e := math.Float64bits(y) >> 52 & 0x7ff; e < 0x3be || e > 0x43d { // |y| < 2^-65 or at least 2^63
		if e < 0x3be {
			return 1
		}
		return math.Pow(x, y)
	}
	k, z, i := split(positive(x), 0x3fe6955500000000)
	a := &powPoly
	r := math.FMA(z, number(powTable[i][0]), -1)
	t1 := math.FMA(k, ln2Hi, number(powTable[i][1]))
	t2 := t1 + r
	lo1 := math.FMA(k, ln2Lo, number(powTable[i][2]))
	lo2 := t1 - t2 + r
	ar := float64(a[0] * r)
	ar2 := float64(r * ar)
	hi := t2 + ar2
	lo3 := math.FMA(ar, r, -ar2)
	lo4 := t2 - hi + ar2
	p := math.FMA(math.FMA(r, a[6], a[5]), ar2, math.FMA(r, a[4], a[3]))
	p = math.FMA(ar2, p, math.FMA(r, a[2], a[1]))
	lo := math.FMA(r*ar2, p, lo1+lo2+lo3+lo4)
	log := hi + lo
	tail := hi - log + lo
	product := float64(y * log)
	return expTwo(product, math.FMA(y, tail, math.FMA(log, y, -product)))
}
