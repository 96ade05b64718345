//go:build !cgo

package pyrand

import "math"

// Without the C library a draw may differ from Python's in its last bit.

func log(x float64) float64    { return math.Log(x) }
func exp(x float64) float64    { return math.Exp(x) }
func pow(x, y float64) float64 { return math.Pow(x, y) }
