package message

import (
	"encoding/binary"
	"fmt"
	"testing"

	"promptfed/runtime/goldentest"
)

// Element types that EncodeTensors does not write are refused before any element is read. A message of them would take
// up to eight times its size in memory.
func TestOtherElementTypes(t *testing.T) {
	encoded := func(dtype string, size int) []byte {
		header := fmt.Sprintf(`{"shared/ctx":{"dtype":%q,"shape":[16],"data_offsets":[0,%d]}}`, dtype, 16*size)
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), make([]byte, 16*size)...)
	}
	for dtype, size := range map[string]int{"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
		"I32": 4, "U32": 4, "U64": 8, "F64": 8} {
		m, err := DecodeTensors(encoded(dtype, size))
		goldentest.WantErrorOf(t, fmt.Sprint(dtype, m.Names()), err, "of type "+dtype)
	}
	for dtype, size := range map[string]int{"F32": 4, "I64": 8} {
		if m, err := DecodeTensors(encoded(dtype, size)); err != nil || m["shared/ctx"].Len() != 16 {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}
