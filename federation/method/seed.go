package method

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// Noise returns random numbers for a release of a layer that nobody else can know: the same for the same release in a
// round, and others for any other release. releases counts the layer's releases in the round, this one included. A nil
// Noise means that noise comes from the run's seed, as in a simulation.
type Noise func(layer string, release []byte) (r *rand.Rand, releases int, err error)

// Rand returns a random source that depends on nothing but the run's seed and the path of words: the round, the client,
// the purpose. Draws do not depend on workers, on the order of arrival or on other draws.
func Rand(seed uint64, path ...string) *rand.Rand {
	key := binary.LittleEndian.AppendUint64(nil, seed)
	h := sha256.Sum256(append(key, strings.Join(path, "/")...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])))
}
