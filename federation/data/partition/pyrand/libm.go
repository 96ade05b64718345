package pyrand

// #cgo LDFLAGS: -lm
// #include <math.h>
import "C"

// CPython and NumPy call log, exp and pow of the C library, and so do these functions. Go's own differ from the C
// library in the last bit in 7 to 50 % of calls, and the last bit of a Dirichlet draw decides whether a cumulated share
// of a partition is 1 or just below.

func log(x float64) float64    { return float64(C.log(C.double(x))) }
func exp(x float64) float64    { return float64(C.exp(C.double(x))) }
func pow(x, y float64) float64 { return float64(C.pow(C.double(x), C.double(y))) }
