package method

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// Rand is a random source that depends on nothing but the run's seed and the path of words: what round, which client,
// what for. So draws do not depend on workers, on arrival or on what else is drawn.
func Rand(seed uint64, path ...string) *rand.Rand {
	key := binary.LittleEndian.AppendUint64(nil, seed)
	h := sha256.Sum256(append(key, strings.Join(path, "/")...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])))
}
