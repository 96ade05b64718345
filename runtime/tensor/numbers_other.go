//go:build !cgo || !amd64

package tensor

func vectors(int) bool                                    { return false }
func blendVectors(float64, []float32, float64, []float32) {}
func addVectors([]float64, float64, []float32)            {}
func finiteVectors([]float32) bool                        { return false }
