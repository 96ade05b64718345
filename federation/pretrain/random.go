package pretrain

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// stream returns a random stream for one purpose, seeded by a hash of the seed, the purpose and the numbers of its use.
func stream(seed uint64, purpose string, k ...int) *rand.Rand {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, seed)
	h.Write([]byte(purpose))
	for _, i := range k {
		binary.Write(h, binary.LittleEndian, int64(i))
	}
	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])))
}
