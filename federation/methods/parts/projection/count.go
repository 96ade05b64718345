package projection

import (
	"fmt"
	"math"
	"slices"
	"strings"
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

// Kinds lists the kinds of projector in sorted order.
func Kinds() []string { return []string{Alg1, Code, Def1, Eq9, ExactNull} }

// KeptEq9 is floor((1-rho)d), the columns that FedPHA Eq. 9 and SDFed Eq. 9 keep.
func KeptEq9(d int, rho float64) int { return floorShare(1-rho, d) }

// KeptAlg1 is d - floor(d(1-rho)), the columns that FedPHA Algorithm 1 keeps.
func KeptAlg1(d int, rho float64) int { return d - floorShare(1-rho, d) }

// KeptDef1 is d - floor(rho d), the columns that SDFed Definition 1 keeps.
func KeptDef1(d int, rho float64) int { return d - floorShare(rho, d) }

// KeptCode is the number of columns of the reduced V that FedPHA's public code keeps: min(T,d) - int(T(1-rho)), and no
// less than 0. The product is a plain float64 product, as in Python, rounding included: T=10, rho=0.9 keeps 10, not 9.
func KeptCode(t, d int, rho float64) int {
	return max(0, min(t, d)-int(float64(t)*(1-rho)))
}

// RemovedExactNull is min(rank, d - floor((1-rho)d)), the leading directions that ExactNull removes.
func RemovedExactNull(rank, d int, rho float64) int { return min(rank, d-KeptEq9(d, rho)) }

// floorShare is floor(share*n) of the decimal number that share stands for: 1-0.9 of 640 is 64, although the float64
// product is 63.99999999999999.
func floorShare(share float64, n int) int {
	return int(math.Floor(share*float64(n) + 1e-9*float64(n)))
}

// keptColumns returns the columns [lo,hi) of the completed V [d,d] that a kind keeps for a prompt [t,d] of the given
// rank.
func keptColumns(kind string, rho float64, t, d, rank int) (lo, hi int, err error) {
	if !(rho >= 0 && rho <= 1) {
		return 0, 0, fmt.Errorf("projection: ratio rho is %v; it must lie in [0,1]", rho)
	}
	switch kind {
	case Eq9:
		return d - KeptEq9(d, rho), d, nil
	case Alg1:
		return d - KeptAlg1(d, rho), d, nil
	case Def1:
		return d - KeptDef1(d, rho), d, nil
	case Code:
		m := min(t, d)
		return m - KeptCode(t, d, rho), m, nil
	case ExactNull:
		return RemovedExactNull(rank, d, rho), d, nil
	}
	return 0, 0, fmt.Errorf("projection: unknown projector %q; known: %s", kind,
		strings.Join(slices.Sorted(slices.Values(Kinds())), ", "))
}
