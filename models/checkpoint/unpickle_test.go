package checkpoint

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func long(n int64) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }

func floats(v ...float32) string {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return string(b)
}

// loadOne reads the tensor "w" of a file.
func loadOne(t *testing.T, data []byte) []float32 {
	t.Helper()
	c := &Checkpoint{format: StateDict, path: "x"}
	var err error
	if c.handles, err = c.read("x", bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	h, err := c.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	x := loaded(t, h)
	return x.Data
}

// Objects that PyTorch 1.13 does not write are written by hand, according to torch/_utils.py and torch/_tensor.py of
// later versions.
func TestRebuildFunctions(t *testing.T) {
	untyped := "(" + str("storage") + "ctorch.storage\nUntypedStorage\n" + str("0") + str("cpu") + num(16) + "tQ"
	typed := "(" + str("storage") + "ctorch\nFloatStorage\n" + str("0") + str("cpu") + num(4) + "tQ"
	hooks := "ccollections\nOrderedDict\n)R"
	v2 := "(" + typed + num(1) + tuple(2) + tuple(1) + "\x89" + hooks + "t"
	for name, c := range map[string]struct {
		value string
		want  []float32
	}{
		"v2": {"ctorch._utils\n_rebuild_tensor_v2\n" + v2 + "R", []float32{2, 3}},
		"v3": {"ctorch._utils\n_rebuild_tensor_v3\n(" + untyped + num(2) + tuple(2) + tuple(1) + "\x89" +
			hooks + "ctorch\nfloat32\ntR", []float32{3, 4}},
		"parameter": {"ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_tensor_v2\n" + v2 + "R\x88" +
			hooks + "tR", []float32{2, 3}},
		"with state": {"ctorch._utils\n_rebuild_parameter_with_state\n(ctorch._utils\n_rebuild_tensor_v2\n" + v2 +
			"R\x88" + hooks + "}tR", []float32{2, 3}},
		"subclass": {"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n" +
			"ctorch.nn.parameter\nParameter\n" + v2 + "}tR", []float32{2, 3}},
	} {
		data := zipOf(t, zip.Store, "data.pkl", "\x80\x02}"+str("w")+c.value+"s.", "data/0", floats(1, 2, 3, 4),
			".format_version", "1", "byteorder", "little")
		if d := cmp.Diff(c.want, loadOne(t, data)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Files from before PyTorch 0.4 hold views of storages: (key, first element, elements).
func TestLegacyStorageView(t *testing.T) {
	view := "(" + str("view") + num(1) + num(3) + "t"
	pid := "(" + str("storage") + "ctorch\nFloatStorage\n" + str("7") + str("cpu") + num(5) + view + "tQ"
	data := "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + "\x80\x02M\xe9\x03." + "\x80\x02}" +
		str("little_endian") + "\x88s." +
		"\x80\x02}" + str("w") + "ctorch._utils\n_rebuild_tensor\n(" + pid + num(1) + tuple(2) + tuple(1) + "tRs." +
		"\x80\x02](" + str("7") + "e." + long(5) + floats(10, 11, 12, 13, 14)
	if d := cmp.Diff([]float32{12, 13}, loadOne(t, []byte(data))); d != "" {
		t.Error(d)
	}
}
