package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"

	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// checksumKey is the metadata key of a file's checksum; the safetensors format has none of its own.
const checksumKey = "sha256"

// WriteChecksummed writes tensors and metadata with a checksum over both, atomically.
func WriteChecksummed(path string, m tensor.Map, meta map[string]string) error {
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[checksumKey] = checksum(m, meta)
	return safetensors.WritePrivateFile(path, m, meta)
}

// ReadChecksummed reads a file of WriteChecksummed and refuses one that was changed since.
func ReadChecksummed(path string) (tensor.Map, map[string]string, error) {
	m, meta, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if checksum(m, meta) != meta[checksumKey] {
		return nil, nil, fmt.Errorf("%s is damaged: its content does not match its checksum; restore a copy or start "+
			"again in another folder", path)
	}
	return m, meta, nil
}

func checksum(m tensor.Map, meta map[string]string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", meta["position"])
	var b []byte
	for _, name := range m.Names() {
		t := m[name]
		fmt.Fprintf(h, "%q %v\n", name, t)
		b = b[:0]
		for _, v := range t.Data {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		for _, v := range t.Ints {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
