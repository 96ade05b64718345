package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// golden is written by tools/golden/checkpoint.py from PyTorch's values.
func golden(t *testing.T) map[string]goldentest.Fact {
	t.Helper()
	want := map[string]goldentest.Fact{}
	goldentest.ReadJSON(t, "testdata/expected.json", &want)
	return want
}

func TestReadsWhatPyTorchHolds(t *testing.T) {
	want := golden(t)
	delete(want, "every half")
	f, err := Open("testdata/all.safetensors")
	goldentest.NoError(t, err)
	defer f.Close()
	got := map[string]goldentest.Fact{}
	whole := filetest.Read(t, "testdata/all.safetensors")
	for _, name := range f.Names() {
		x, err := f.Tensor(name)
		goldentest.NoError(t, err)
		got[name] = goldentest.FactOf(x)
		info, err := f.Info(name)
		goldentest.NoError(t, err)
		if info.DType == "F32" && info.Length > 0 {
			bits := binary.LittleEndian.Uint32(whole[info.Offset:])
			if bits != math.Float32bits(x.Data[0]) {
				t.Errorf("%s: the first value at offset %d is %x, Tensor says %v", name, info.Offset, bits, x.Data[0])
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"format": "pt", "note": "café"}, f.Metadata()); d != "" {
		t.Error(d)
	}
}

// The hash over all 65536 half-precision numbers is PyTorch's, with NaN replaced by 0 on both sides.
func TestHalfIsExact(t *testing.T) {
	all, raw := tensor.New(65536), []byte{}
	for i := range all.Data {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(i))
	}
	goldentest.NoError(t, Decode("F16", raw, all, 0))
	for i, v := range all.Data {
		if nan := v != v; nan != (i&0x7c00 == 0x7c00 && i&0x3ff != 0) {
			t.Fatalf("%#x became %v", i, v)
		} else if nan {
			all.Data[i] = 0
		}
	}
	if d := cmp.Diff(golden(t)["every half"], goldentest.FactOf(all)); d != "" {
		t.Error(d)
	}
}

const overlapping = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},` +
	`"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`

func sample() tensor.Map {
	return tensor.Map{
		"b":     tensor.Of([]float32{1, float32(math.Inf(-1)), math.Float32frombits(0x7fc00001)}, 3),
		"a/<&>": tensor.Of([]float32{-0.5, 2}, 2, 1), "n": tensor.OfInts([]int64{math.MinInt64, 7}, 2),
		"none": tensor.New(0, 4), "s": tensor.Scalar(3), "z": tensor.OfInts([]int64{}, 0),
		strings.Repeat("n", 512): tensor.Of(slices.Repeat([]float32{1, 2, 3}, 1<<15), 3<<15), // read in parts
	}
}

// The bytes were laid out by hand from the published format.
func TestWriteBytes(t *testing.T) {
	var b bytes.Buffer
	m := tensor.Map{"b": tensor.Of([]float32{1}, 1), "a": tensor.Scalar(-2), "n": tensor.OfInts([]int64{258}, 1)}
	goldentest.NoError(t, Write(&b, m, map[string]string{"y": "2", "x": "1"}))
	h := `{"__metadata__":{"x":"1","y":"2"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},` +
		`"a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`
	h += strings.Repeat(" ", (8-len(h)%8)%8)
	want := string(binary.LittleEndian.AppendUint64(nil, uint64(len(h)))) + h +
		"\x02\x01\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\xc0" + "\x00\x00\x80\x3f"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

func TestRoundTrip(t *testing.T) {
	var one, two bytes.Buffer
	goldentest.NoError(t, Write(&one, sample(), map[string]string{"k": "v"}))
	f, err := Parse(bytes.NewReader(one.Bytes()), int64(one.Len()))
	goldentest.NoError(t, err)
	m, err := f.Tensors()
	goldentest.NoError(t, errors.Join(err, f.Close()))
	for name, x := range sample() {
		if goldentest.FactOf(x).SHA256 != goldentest.FactOf(m[name]).SHA256 || !x.SameShape(m[name]) {
			t.Errorf("%s: wrote %v, read %v", name, x, m[name])
		}
	}
	goldentest.NoError(t, Write(&two, m, f.Metadata()))
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("writing what was read gives other bytes")
	}
}

func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"a":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

func TestRefuses(t *testing.T) {
	entry := `{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "too short"},
		{"length beyond file", append(binary.LittleEndian.AppendUint64(nil, 50), '{'), "truncated"},
		{"giant length", append(binary.LittleEndian.AppendUint64(nil, 1<<63), '{'), "above the limit"},
		{"no header", file("", 0), "does not start"},
		{"not an object", file("[]", 0), "does not start"},
		{"broken JSON", file(`{"a":`, 0), "not JSON"},
		{"cut JSON", file(`{"a":`+entry, 4), "not JSON"},
		{"text after JSON", file(one("F32", "[1]", "[0,4]")+" x", 4), "follow the JSON"},
		{"twice", file(`{"a":`+entry+`,"a":`+entry+`}`, 4), `duplicate object member name "a"`},
		{"unknown dtype", file(one("F31", "[1]", "[0,4]"), 4), `unknown dtype "F31"`},
		{"no shape", file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), "needs dtype"},
		{"three offsets", file(one("F32", "[1]", "[0,4,8]"), 4), "two data_offsets"},
		{"one offset", file(one("F32", "[1]", "[0]"), 4), "two data_offsets"},
		{"field twice", file(`{"a":{"dtype":"F32","shape":[1],"dtype":"F16","data_offsets":[0,4]}}`, 4),
			`duplicate object member name "dtype"`},
		{"field in capitals", file(`{"a":{"DTYPE":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), "needs dtype"},
		{"null", file(`{"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}`, 4), "null is no value"},
		{"null in a shape", file(one("F32", "[null]", "[0,0]"), 0), "null is no value"},
		{"null in offsets", file(one("F32", "[1]", "[null,4]"), 4), "null is no value"},
		{"null as entry", file(`{"a":null}`, 0), "null is no value"},
		{"null as metadata", file(`{"__metadata__":null}`, 0), "null is no value"},
		{"null in metadata", file(`{"__metadata__":{"a":null}}`, 0), "null is no value"},
		{"a list as entry", file(`{"a":[1]}`, 4), "bad entry"},
		{"a shape that is an object", file(one("F32", "{}", "[0,4]"), 4), `unmarshal JSON object into`},
		{"a shape of lists", file(one("F32", "[[1]]", "[0,4]"), 4), "bad entry"},
		{"rank 65", file(one("F32", "["+strings.Repeat("1,", 64)+"1]", "[0,4]"), 4), "rank 65 is above 64"},
		{"metadata twice", file(`{"__metadata__":{"a":"b","a":"c"}}`, 0), `duplicate object member name "a"`},
		{"long name", file(`{"`+strings.Repeat("n", 513)+`":`+entry+`}`, 4), "a name of 513 bytes, the limit is 512"},
		{"long dtype", file(one(strings.Repeat("F", 1<<20), "[1]", "[0,4]"), 4), "the limit is 65536"},
		{"deep", file(`{"a":{"x":`+strings.Repeat("[", 1<<20), 0), "not JSON"},
		{"a ZIP", []byte("PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "above the limit"},
		{"a pickle", []byte("\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."), "above the limit"},
		{"plain JSON", []byte(`{"a": {"dtype": "F32"}}`), "above the limit"},
		{"backwards", file(one("F32", "[1]", "[4,0]"), 4), "ascending order"},
		{"negative offset", file(one("F32", "[1]", "[-4,0]"), 4), "ascending order"},
		{"negative dimension", file(one("F32", "[-1]", "[0,4]"), 4), "negative dimension"},
		{"fraction", file(one("F32", "[1.5]", "[0,4]"), 4), "bad entry"},
		{"size mismatch", file(one("F32", "[2]", "[4,8]"), 8), "needs 8 bytes, but data_offsets [4 8] hold 4"},
		{"overflow", file(one("F32", "[4294967296,4294967296]", "[0,0]"), 0), "overflows"},
		{"overflow beside zero", file(one("F32", "[4294967296,4294967296,0]", "[0,0]"), 0), "overflows"},
		{"overflow after zero", file(one("F32", "[0,4294967296,4294967296]", "[0,0]"), 0), "overflows"},
		{"dimension beyond int64", file(one("F32", "[9223372036854775808]", "[0,0]"), 0), "bad entry"},
		{"beyond file", file(one("F32", "[2]", "[0,8]"), 4), "at data offset 8, but the file holds 4 data bytes"},
		{"bytes left", file(one("F32", "[1]", "[0,4]"), 5), "follow the last tensor"},
		{"gap", file(one("F32", "[1]", "[4,8]"), 8), "belong to no tensor"},
		{"overlap", file(overlapping, 8), "overlaps"},
		{"metadata of numbers", file(`{"__metadata__":{"a":1}}`, 0), "__metadata__: bad entry"},
		{"a list as dtype", file(`{"a":{"dtype":[0,4]:"716"`, 0), "not JSON"},
	}
	for _, c := range cases {
		_, err := Parse(bytes.NewReader(c.file), int64(len(c.file)))
		goldentest.WantErrorOf(t, c.name, err, c.want)
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestUnreadableValues(t *testing.T) {
	for _, c := range []struct{ dtype, want string }{{"F8_E4M3", "cannot be read"}, {"U64", "does not fit int64"}} {
		n := ElementSize(c.dtype)
		b := file(one(c.dtype, "[1]", fmt.Sprintf("[0,%d]", n)), 0)
		b = append(b, bytes.Repeat([]byte{0xff}, n)...)
		f, err := Parse(bytes.NewReader(b), int64(len(b)))
		goldentest.NoError(t, err)
		_, err = f.Tensor("a")
		goldentest.WantErrorOf(t, c.dtype, err, `safetensors: tensor "a": `, c.want)
		_, err = f.Tensor("b")
		goldentest.WantErrorOf(t, "missing name", err, `no tensor "b"`)
	}
	_, err := ReadTensor(bytes.NewReader(make([]byte, 8)), Info{"F32", []int{2}, 0, 4})
	goldentest.WantError(t, err, "F32[2] does not fit 4 bytes")
}

func TestWriteRefuses(t *testing.T) {
	for want, m := range map[string]tensor.Map{
		"cannot name":   {"__metadata__": tensor.New(1)},
		"is nil":        {"a": nil},
		"for shape [3]": {"a": {Shape: []int{3}, Data: make([]float32, 2)}},
		"at once":       {"a": {Shape: []int{1}, Data: make([]float32, 1), Ints: make([]int64, 1)}},
	} {
		goldentest.WantError(t, Write(&bytes.Buffer{}, m, nil), want)
	}
}

func TestWriteFileReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.safetensors")
	for range 2 {
		goldentest.NoError(t, WriteFile(path, sample(), nil))
	}
	if m, _, err := ReadFile(path); err != nil || len(m) != len(sample()) {
		t.Errorf("%d tensors, %v", len(m), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("the folder holds %v", left)
	}
}

// A file size limit of the operating system stands in for a full disk: the write fails half-way.
func TestFullDiskKeepsTheOldFile(t *testing.T) {
	if path := os.Getenv("SAFETENSORS_FULL_DISK"); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 16, Max: 1 << 16}); err != nil {
			t.Skip(err)
		}
		err := WriteFile(path, tensor.Map{"big": tensor.New(1 << 20)}, nil)
		if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "nothing was changed") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("error %v", err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "p.safetensors")
	goldentest.NoError(t, WriteFile(path, sample(), nil))
	before, _ := os.ReadFile(path)
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDiskKeepsTheOldFile$")
	cmd.Env = append(os.Environ(), "SAFETENSORS_FULL_DISK="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old file changed (%v)", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("the folder holds %v", left)
	}
}

func FuzzParse(f *testing.F) {
	good := filetest.Read(f, "testdata/all.safetensors")
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(file(one("F16", "[1,2]", "[0,4]"), 4))
	f.Add(file(one("F32", "[4294967296,4294967296,0]", "[0,0]"), 0))
	f.Add(file(overlapping, 8))
	f.Add(file(`{"a":{"dtype":[0,4]:"716","shape":[1,2`, 4))
	f.Add(file(`{"a":{"dtype":"I64","x":[[{}]],"shape":[1],"data_offsets":[0,8],"dtype":"F64"}}`, 8))
	f.Add(file(`{"a":{"dtype":"U8","shape":[9223372036854775807,2],"data_offsets":[0,9223372036854775807]}}`, 8))
	f.Add(file(`{"a":{"x":`+strings.Repeat("[", 300), 0))
	f.Add([]byte("PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(file(`{"__metadata__":{"a":"b"},"a":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}  `, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, name := range file.Names() {
			info, err := file.Info(name)
			if err != nil || info.Offset < 8 || info.Offset+info.Length > int64(len(b)) {
				t.Fatalf("%q: %+v %v", name, info, err)
			}
			if x, err := file.Tensor(name); err == nil && x.Len() != tensor.Size(info.Shape) {
				t.Fatalf("%q: %d values for %v", name, x.Len(), info.Shape)
			}
		}
	})
}
