package projection

import (
	"maps"
	"math"
	"slices"
)

// The kinds of projector that FedPHA and SDFed describe. With V the right singular vectors of the global prompt p
// [T,d], by falling singular value, and V completed to [d,d] by a basis of the null space, each keeps a run of columns
// of V:
const (
	// Eq9 keeps the last floor((1-rho)d) columns (FedPHA Eq. 9, SDFed Eq. 9).
	Eq9 = "eq9"
	// Alg1 keeps V[:, floor(d(1-rho)):d] (FedPHA Algorithm 1): the larger rho, the more it keeps, unlike Eq9.
	Alg1 = "alg1"
	// Def1 keeps the columns floor(rho d)+1..d (SDFed Definition 1), one more than Eq9 unless rho d is an integer.
	Def1 = "def1"
	// Code keeps V[:, int(T(1-rho)):] of the reduced V [d, min(T,d)], as FedPHA's public code does: a projection onto
	// the weaker directions of the prompt itself.
	Code = "code"
	// ExactNull removes the leading min(rank, d - floor((1-rho)d)) columns and keeps everything else, so that it does
	// not depend on the choice of a basis of the null space.
	ExactNull = "exact-null"
)

// columns holds the columns [lo,hi) of the completed V [d,d] that a kind keeps for a prompt [t,d] of the given rank.
var columns = map[string]func(rho float64, t, d, rank int) (lo, hi int){
	Eq9:  func(rho float64, _, d, _ int) (int, int) { return d - floorShare(1-rho, d), d },
	Alg1: func(rho float64, _, d, _ int) (int, int) { return floorShare(1-rho, d), d },
	Def1: func(rho float64, _, d, _ int) (int, int) { return floorShare(rho, d), d },
	// The product is a plain float64 product, as in Python, rounding included: T=10, rho=0.9 keeps 10, not 9.
	Code: func(rho float64, t, d, _ int) (int, int) {
		m := min(t, d)
		return min(m, int(float64(t)*(1-rho))), m
	},
	ExactNull: func(rho float64, _, d, rank int) (int, int) { return min(rank, d-floorShare(1-rho, d)), d },
}

// Kinds lists the kinds of projector in sorted order.
func Kinds() []string { return slices.Sorted(maps.Keys(columns)) }

// floorShare is floor(share*n) of the decimal number that share stands for: 1-0.9 of 640 is 64, although the float64
// product is 63.99999999999999.
func floorShare(share float64, n int) int {
	return int(math.Floor(share*float64(n) + 1e-9*float64(n)))
}
