package method

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// Noise gives random numbers for what a layer is about to release, which nobody else can know: the same for the same
// release of a layer in a round, others for any other. releases counts what the layer released in the round so far,
// this release among it. It is nil where noise comes from the run's seed, as in a simulation.
type Noise func(layer string, release []byte) (r *rand.Rand, releases int, err error)

// Rand is a random source that depends on nothing but the run's seed and the path of words: what round, which client,
// what for. So draws do not depend on workers, on arrival or on what else is drawn.
func Rand(seed uint64, path ...string) *rand.Rand {
	key := binary.LittleEndian.AppendUint64(nil, seed)
	h := sha256.Sum256(append(key, strings.Join(path, "/")...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])))
}
