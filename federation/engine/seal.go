package engine

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

// sealKey is where a sealed file's checksum stands in its metadata: the safetensors format has none of its own.
const sealKey = "sha256"

// writeSealed writes tensors and metadata with a checksum over both, atomically.
func writeSealed(path string, m tensor.Map, meta map[string]string) error {
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[sealKey] = seal(m, meta)
	return safetensors.WritePrivateFile(path, m, meta)
}

// readSealed reads what writeSealed wrote and refuses a file that was changed since.
func readSealed(path string) (tensor.Map, map[string]string, error) {
	m, meta, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if seal(m, meta) != meta[sealKey] {
		return nil, nil, fmt.Errorf("%s is damaged: its content does not fit its checksum; put back a copy or start "+
			"again in another folder", path)
	}
	return m, meta, nil
}

func seal(m tensor.Map, meta map[string]string) string {
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
