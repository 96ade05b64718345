//go:build cgo

package pyrand

// #cgo LDFLAGS: -lm
// #include <math.h>
import "C"

// CPython and NumPy take log, exp and pow from the C library, and so do these. Go's own differ from it in the last bit
// in 7 to 50 % of calls, and the last bit of a Dirichlet draw decides whether a cumulated share of a partition is 1 or
// just below.

func log(x float64) float64    { return float64(C.log(C.double(x))) }
func exp(x float64) float64    { return float64(C.exp(C.double(x))) }
func pow(x, y float64) float64 { return float64(C.pow(C.double(x), C.double(y))) }
