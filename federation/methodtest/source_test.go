package methodtest

import (
	"math/rand/v2"
	"testing"
)

// The values of math/rand/v2 that the comment of Source promises.
func TestSource(t *testing.T) {
	r := rand.New(&Source{Salt: 3})
	for i := range 1000 {
		x := uint32((Value(3, i) + 1) * (1 << 31))
		j := int32(x) >> 1
		if i%2 == 0 {
			if got, want := r.NormFloat64(), float64(j)*float64(float32(normalWidth)); got != want {
				t.Fatalf("normal number %d is %v, want %v", i, got, want)
			}
		} else if got, want := r.Float64(),
			float64((uint64(x>>18)<<39|127<<32|uint64(uint32(j)))&(1<<53-1))/(1<<53); got != want {
			t.Fatalf("uniform number %d is %v, want %v", i, got, want)
		}
	}
}
