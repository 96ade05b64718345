package secagg

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// Ring is the ring of integers modulo 2^(8 Width), in which vectors are masked and summed. An element takes Width
// bytes.
type Ring struct{ Width int }

// SmallestRing returns the smallest ring that holds sums between -most and most as signed numbers.
func SmallestRing(most uint64) (Ring, error) {
	for w := 1; w <= 8; w++ {
		if most <= 1<<(8*w-1)-1 {
			return Ring{w}, nil
		}
	}
	return Ring{}, fmt.Errorf("sums up to %d do not fit 64 bits; use fewer bits or clients", most)
}

func (r Ring) mask() uint64 { return ^uint64(0) >> (64 - 8*r.Width) }

// Element returns the element of a signed number.
func (r Ring) Element(v int64) uint64 { return uint64(v) & r.mask() }

// Signed returns the number nearest to 0 that an element represents.
func (r Ring) Signed(v uint64) int64 {
	shift := 64 - 8*r.Width
	return int64(v<<shift) >> shift
}

// add adds x to sum.
func (r Ring) add(sum, x []uint64) {
	m := r.mask()
	for i, v := range x {
		sum[i] = (sum[i] + v) & m
	}
}

// chunk is the number of mask elements computed at a time.
const chunk = 1 << 14

// addMask adds the mask of a key to sum, or subtracts it. The mask is AES-256 in counter mode over zeros.
func (r Ring) addMask(sum []uint64, key []byte, minus bool) {
	stream := cipher.NewCTR(block(key), make([]byte, aes.BlockSize))
	buf, m := make([]byte, chunk*r.Width+8), r.mask()
	for len(sum) > 0 {
		n := min(chunk, len(sum))
		clear(buf)
		stream.XORKeyStream(buf[:n*r.Width], buf[:n*r.Width])
		for i := range n {
			v := binary.LittleEndian.Uint64(buf[i*r.Width:])
			if minus {
				v = -v
			}
			sum[i] = (sum[i] + v) & m
		}
		sum = sum[n:]
	}
}

// Encode writes elements, with Width bytes each.
func (r Ring) Encode(v []uint64) []byte {
	out := make([]byte, len(v)*r.Width, len(v)*r.Width+8)
	var b [8]byte
	for i, x := range v {
		binary.LittleEndian.PutUint64(b[:], x)
		copy(out[i*r.Width:(i+1)*r.Width], b[:])
	}
	return out
}

// Decode reads the bytes of Encode.
func (r Ring) Decode(b []byte) ([]uint64, error) {
	if r.Width < 1 || r.Width > 8 || len(b)%r.Width != 0 {
		return nil, fmt.Errorf("%d bytes are not a vector of numbers of %d bytes", len(b), r.Width)
	}

	out := make([]uint64, len(b)/r.Width)
	for i := range out {
		var x [8]byte
		copy(x[:], b[i*r.Width:(i+1)*r.Width])
		out[i] = binary.LittleEndian.Uint64(x[:])
	}

	return out, nil
}
