package data

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// TestRoundHalf: numbers derived from IEEE 754 binary16 (10 bits of fraction, smallest subnormal 2^-24, largest
// 65,504): 1+2^-11 and 1+3*2^-11 are ties and go to even; 2^-25 is a tie with zero.
func TestRoundHalf(t *testing.T) {
	p := func(e int) float32 { return float32(math.Ldexp(1, e)) }
	x := tensor.Of([]float32{1, 1 + p(-11), 1 + 3*p(-11), 1 + p(-11) + p(-20), 65504, 65519, -0.1, p(-24), p(-25),
		p(-25) + p(-40)}, 10)
	want := []float32{1, 1, 1 + p(-9), 1 + p(-10), 65504, 65504, -0.0999755859375, p(-24), 0, p(-24)}
	if err := RoundHalf(x); err != nil || !slices.Equal(x.Data, want) {
		t.Errorf("%v\nwant %v (%v)", x.Data, want, err)
	}
	for _, v := range []float32{65520, -1e9, float32(math.NaN()), float32(math.Inf(1))} {
		y := tensor.Of([]float32{0.1, v}, 2)
		goldentest.WantError(t, RoundHalf(y), "element 1 of [2]", "half precision")
		if y.Data[0] != 0.1 {
			t.Error("changed in spite of the error")
		}
	}
}

// fileSize returns the size of a shard in the safetensors format: 8 bytes of the header's length, the header, padded
// with spaces to a multiple of 8, and the rows; then 32 bytes of SHA-256.
func fileSize(dtype string, shape string, rows int) int64 {
	header := fmt.Sprintf(`{"__metadata__":{"key":"%064d"},"rows":{"dtype":%q,"shape":%s,"data_offsets":[0,%d]}}`, 0,
		dtype, shape, rows)
	return int64((8+len(header)+7)/8*8 + rows + 32)
}

func matrix(n, d int) *tensor.Tensor {
	x := tensor.New(n, d)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i)))
	}
	return x
}

func TestCacheWarmEqualsCold(t *testing.T) {
	c := Cache{Dir: filepath.Join(t.TempDir(), "new", "cache")}
	k := Source{Bundle: "b", Layer: "image"}.Key()
	if x, ok, err := get(c, k, 300, 257); x != nil || ok || err != nil {
		t.Fatalf("empty cache: %v %v %v", x, ok, err)
	}
	x := matrix(300, 257)
	raw := x.Clone()
	goldentest.NoError(t, put(c, k, x))
	if reflect.DeepEqual(x, raw) {
		t.Error("Append did not round")
	}
	y, ok, err := get(c, k, x.Shape...)
	if err != nil || !ok || !reflect.DeepEqual(x, y) {
		t.Fatalf("read back: %v %v", ok, err)
	}
	r, err := c.Matrix(k, x.Shape, per)
	goldentest.NoError(t, err)
	defer r.Close()
	index := []int{299, 0, 7, 7}
	if z, err := r.Read(index); err != nil || !reflect.DeepEqual(z, x.Rows(index)) {
		t.Errorf("rows: %v", err)
	}
	for _, i := range []int{-1, 300} {
		_, err := r.Read([]int{i})
		goldentest.WantError(t, err, fmt.Sprintf("row %d", i))
	}
	if z, err := r.Read(nil); err != nil || !slices.Equal(z.Shape, []int{0, 257}) {
		t.Errorf("no rows: %v %v", z, err)
	}
	for i := range 3 { // others may read it
		if st, err := os.Stat(c.path(k, i)); err != nil || st.Size() != fileSize("F16", "[100,257]", 2*100*257) ||
			st.Mode().Perm() != 0o644 {
			t.Errorf("shard %d: size %v, mode %v, %v", i, st.Size(), st.Mode(), err)
		}
	}
}

// Pieces may begin and end anywhere in a shard, and one may reach over several. A row is larger than the part of the
// rows that a core reads.
func TestMatrixInPieces(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	whole, pieces := Key{1}, Key{2}
	x := matrix(10, 2*tensor.Part)
	x.Shape = []int{10, 2, tensor.Part}
	m, err := c.Matrix(pieces, x.Shape, per)
	goldentest.NoError(t, err)
	for _, index := range [][]int{{0, 1, 2}, {3}, {}, {4, 5, 6, 7, 8}} {
		goldentest.NoError(t, m.Append(x.Rows(index)))
	}
	goldentest.WantError(t, m.Append(x.Rows([]int{0, 1})), "do not fit")
	goldentest.WantError(t, m.Append(tensor.New(0, 6)), "do not fit")
	for _, row := range []int{0, -1, 10} {
		_, err = m.Read([]int{row})
		goldentest.WantError(t, err, fmt.Sprint("no row ", row))
	}
	if got, err := m.Read([]int{}); err != nil || got.Len() != 0 {
		t.Error(got, err)
	}
	if _, ok, _ := get(c, pieces, x.Shape...); ok {
		t.Error("visible before its last row")
	}
	goldentest.NoError(t, m.Append(x.Rows([]int{9})))
	goldentest.WantError(t, m.Append(x.Rows([]int{0})), "is complete")
	goldentest.NoError(t, m.Close())
	goldentest.NoError(t, put(c, whole, x))
	a, _, err1 := get(c, whole, x.Shape...)
	b, _, err2 := get(c, pieces, x.Shape...)
	if err1 != nil || err2 != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v %v", err1, err2)
	}
	goldentest.WantError(t, put(c, Key{3}, tensor.Of([]float32{1e30}, 1)), "half precision")
	goldentest.WantError(t, put(c, Key{3}, tensor.Scalar(1)), "shape")
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*", "*", "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	goldentest.NoError(t, put(c, Key{4}, tensor.New(0, 5)))
	if e, ok, err := get(c, Key{4}, 0, 5); !ok || err != nil || !slices.Equal(e.Shape, []int{0, 5}) {
		t.Errorf("empty matrix: %v %v %v", e, ok, err)
	}
}

// TestShards: rows of lost or damaged shards are missing, and no others; MissingBytes returns their size on disk; after
// they are appended again, in order, the matrix is the same as before. A shard that is cut off later is an error.
func TestShards(t *testing.T) {
	told := 0
	c := Cache{Dir: t.TempDir(), Damaged: func(string, error) { told++ }}
	k, x := Key{8}, matrix(10, 4)
	open := func() *Matrix {
		m, err := c.Matrix(k, x.Shape, 3) // rows 0-2, 3-5, 6-8, 9
		goldentest.NoError(t, err)
		return m
	}
	fill := func(m *Matrix) {
		for _, rows := range m.Missing() {
			for i := rows[0]; i < rows[1]; i++ {
				goldentest.NoError(t, m.Append(x.Rows([]int{i})))
			}
		}
	}
	missing := func(m *Matrix, want ...[2]int) {
		t.Helper()
		if got := m.Missing(); !slices.Equal(got, want) {
			t.Errorf("missing are %v, want %v", got, want)
		}
	}
	three, one := fileSize("F16", "[3,4]", 2*3*4), fileSize("F16", "[1,4]", 2*1*4)
	if n := c.MissingBytes(k, x.Shape, 3); n != 3*three+one {
		t.Errorf("all shards take %d bytes", n)
	}
	m := open()
	missing(m, [2]int{0, 10})
	fill(m)
	missing(m)
	m.Close()
	if n := c.MissingBytes(k, x.Shape, 3); n != 0 {
		t.Errorf("%d bytes are lacking of a whole matrix", n)
	}
	raw, err := os.ReadFile(c.path(k, 1))
	if err == nil {
		raw[len(raw)-1] ^= 1
		err = errors.Join(os.WriteFile(c.path(k, 1), raw, 0o644), os.Remove(c.path(k, 3)),
			os.Rename(c.path(k, 0), c.path(k, 2))) // a shard is not accepted as another one
	}
	goldentest.NoError(t, err)
	if n := c.MissingBytes(k, x.Shape, 3); n != three+one { // the sizes of absent shards
		t.Errorf("%d bytes are lacking", n)
	}
	m = open()
	missing(m, [2]int{0, 10})
	m.Close()
	if told != 2 {
		t.Errorf("told of %d damaged shards, want 2", told)
	}
	m = open()
	for i := range 4 { // up to the point where the process is killed
		goldentest.NoError(t, m.Append(x.Rows([]int{i})))
	}
	m.Close()
	m = open()
	missing(m, [2]int{3, 10})
	fill(m)
	m.Close()
	m = open()
	defer m.Close()
	goldentest.NoError(t, RoundHalf(x))
	if y, err := m.Read(tensor.Indices(10)); err != nil || !reflect.DeepEqual(x, y) {
		t.Errorf("read %v, %v", y, err)
	}
	if bad, err := c.Matrix(k, []int{10, 2, 2}, 3); err != nil || len(bad.Missing()) != 1 {
		t.Errorf("rows of 4 pass for rows of 2 by 2: %v", err)
	}
	goldentest.NoError(t, os.Truncate(c.path(k, 1), 0))
	_, err = m.Read([]int{4})
	goldentest.WantError(t, err, "row 4: "+c.path(k, 1)+" was cut off")
}

// TestCacheDetectsDamage flips a bit in every byte of a small file and truncates it at every length: the file always
// counts as absent and is never read as a matrix, and writing it again repairs it. Only a file without room for
// the 32 bytes of SHA-256 is said to be truncated.
func TestCacheDetectsDamage(t *testing.T) {
	told, why := 0, error(nil)
	c := Cache{Dir: t.TempDir(), Damaged: func(_ string, err error) { told, why = told+1, err }}
	k := Key{5}
	goldentest.NoError(t, put(c, k, matrix(3, 4)))
	raw := filetest.Read(t, c.path(k, 0))
	check := func(what string, at int, bytes []byte) {
		t.Helper()
		filetest.Write(t, c.path(k, 0), bytes)
		before := told
		if x, ok, err := get(c, k, 3, 4); x != nil || ok || err != nil || told != before+1 ||
			(why.Error() == "truncated") != (len(bytes) < 32) {
			t.Fatalf("%s at %d: %v %v %v, told %d of %v", what, at, x, ok, err, told-before, why)
		}
	}
	for i := range raw {
		check("cut", i, raw[:i])
		bad := slices.Clone(raw)
		bad[i] ^= 1 << (i % 8)
		check("flip", i, bad)
	}
	check("longer", 0, append(slices.Clone(raw), 0))
	goldentest.NoError(t, put(c, k, matrix(3, 4)))
	if _, ok, err := get(c, k, 3, 4); !ok || err != nil {
		t.Error("not repaired", err)
	}
	other := Key{6}
	filetest.Folder(t, c.folder(other))
	goldentest.NoError(t, os.Rename(c.path(k, 0), c.path(other, 0)))
	if _, ok, _ := get(c, other, 3, 4); ok {
		t.Error("a renamed file passed for another key")
	}
}

// TestCacheSharedByWriters: concurrent writers and readers of one key see only the whole matrix.
func TestCacheSharedByWriters(t *testing.T) {
	c := Cache{Dir: t.TempDir(), Damaged: func(p string, why error) { t.Errorf("%s: %v", p, why) }}
	want := matrix(50, 20)
	goldentest.NoError(t, RoundHalf(want))
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 10 {
				if err := put(c, Key{7}, matrix(50, 20)); err != nil {
					t.Error(err)
				}
				if x, ok, err := get(c, Key{7}, 50, 20); !ok || err != nil || !reflect.DeepEqual(x, want) {
					t.Error(ok, err)
				}
			}
		})
	}
	g.Wait()
}

func TestKeysDependOnEverything(t *testing.T) {
	base := Source{"b", []ContentHash{{1}, {2}}, []string{"i", "j"}, "p", 1, 2, "image", "", 8, "n", 0}
	seen := map[Key]string{base.Key(): "base"}
	v := reflect.ValueOf(base)
	for i := range v.NumField() {
		s := base
		f := reflect.ValueOf(&s).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Int:
			f.SetInt(f.Int() + 10)
		case reflect.Uint64:
			f.SetUint(f.Uint() + 10)
		case reflect.Slice: // the same elements in another order
			f.Set(reflect.Append(reflect.Append(reflect.Zero(f.Type()), f.Index(1)), f.Index(0)))
		default:
			t.Fatalf("field %s", v.Type().Field(i).Name)
		}
		if other, ok := seen[s.Key()]; ok {
			t.Errorf("changing %s gives the key of %s", v.Type().Field(i).Name, other)
		}
		seen[s.Key()] = v.Type().Field(i).Name
	}
	if (Source{Precision: Half}).Key() != (Source{}).Key() {
		t.Error("half precision, the default, has two keys")
	}
	if (Source{Bundle: "ab"}).Key() == (Source{Bundle: "a", Preprocessing: "b"}).Key() {
		t.Error("fields run into each other")
	}
}

// TestFloatRows: float32 rows are read back bit for bit, and a file of one precision is not read as the other, even
// under one key.
func TestFloatRows(t *testing.T) {
	x := matrix(9, 5)
	x.Data[3], x.Data[4], x.Data[5] = math.SmallestNonzeroFloat32, 70000, float32(math.Copysign(0, -1))
	want := x.Clone()
	c := Cache{Dir: t.TempDir(), Precision: Float}
	goldentest.NoError(t, put(c, Key{1}, x))
	y, ok, err := get(c, Key{1}, 9, 5)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for i, v := range want.Data {
		if math.Float32bits(v) != math.Float32bits(y.Data[i]) || math.Float32bits(v) != math.Float32bits(x.Data[i]) {
			t.Errorf("element %d: %v became %v", i, v, y.Data[i])
		}
	}
	if st, err := os.Stat(c.path(Key{1}, 0)); err != nil || st.Size() != fileSize("F32", "[9,5]", 4*9*5) {
		t.Errorf("size %v %v", st.Size(), err)
	}
	told := 0
	half := Cache{Dir: c.Dir, Damaged: func(string, error) { told++ }}
	if _, ok, err := get(half, Key{1}, 9, 5); ok || err != nil || told != 1 {
		t.Errorf("float32 rows were read as half precision: %v %v", ok, err)
	}
	goldentest.NoError(t, put(half, Key{1}, matrix(9, 5)))
	if _, ok, err := get(c, Key{1}, 9, 5); ok || err != nil {
		t.Errorf("half precision was read as float32: %v %v", ok, err)
	}
	goldentest.WantError(t, put(c, Key{2}, tensor.Of([]float32{1, float32(math.NaN())}, 1, 2)), "element 1")
}

func TestCacheUnwritable(t *testing.T) {
	file := filetest.Write(t, filepath.Join(t.TempDir(), "file"), "")
	goldentest.WantError(t, put(Cache{Dir: file}, Key{}, matrix(1, 1)), file, "feature cache", "set runtime.cache")
	goldentest.WantError(t, unusable(syscall.ENOMEM), "vm.max_map_count", "lower data.views")
}

func FuzzReadRows(f *testing.F) {
	dir := f.TempDir()
	c := Cache{Dir: dir}
	for i, shape := range [][]int{{3, 4}, {2, 1, 2}, {2, 3}} {
		if i == 2 {
			c.Precision = Float
		}
		os.RemoveAll(c.folder(Key{1}))
		goldentest.NoError(f, put(c, Key{1}, tensor.New(shape...)))
		raw := filetest.Read(f, c.path(Key{1}, 0))
		f.Add(raw, false)
		f.Add(raw[:len(raw)-32], true)
		f.Add(raw[:len(raw)-40], true)
		f.Add(bytes.Replace(raw[:len(raw)-32], []byte(`"shape":[`), []byte(`"shape":[9`), 1), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, seal bool) {
		if seal { // with a valid checksum the fuzzer reaches the code after the check
			w := sha256.Sum256(raw)
			raw = append(slices.Clone(raw), w[:]...)
		}
		for _, dtype := range []string{"F16", "F32"} {
			r, err := readRows(bytes.NewReader(raw), int64(len(raw)), Key{1}.shard(0), dtype)
			if err != nil {
				continue
			}
			row := tensor.New(r.Shape[1:]...)
			size := safetensors.ElementSize(dtype) * row.Len()
			if int64(r.Shape[0])*int64(size) > int64(len(raw)) {
				t.Fatalf("%v of %d bytes", r.Shape, len(raw))
			}
			for _, i := range []int{0, r.Shape[0] - 1} {
				if r.Shape[0] == 0 {
					break
				}
				goldentest.NoError(t, r.read(i, row, 0, make([]byte, size)))
			}
		}
	})
}

// per is the number of rows of a shard in these tests.
const per = 100

// put stores a matrix, whose missing shards may be several in a row, and rounds it.
func put(c Cache, k Key, t *tensor.Tensor) error {
	m, err := c.Matrix(k, t.Shape, per)
	if err != nil {
		return err
	}
	width := tensor.Size(t.Shape[1:])
	for _, rows := range m.Missing() {
		part := t.Data[rows[0]*width : rows[1]*width]
		if err := m.Append(tensor.Of(part, append([]int{rows[1] - rows[0]}, t.Shape[1:]...)...)); err != nil {
			m.Close()
			return err
		}
	}
	return m.Close()
}

// get reads a matrix of a shape; false if it is absent or damaged.
func get(c Cache, k Key, shape ...int) (*tensor.Tensor, bool, error) {
	m, err := c.Matrix(k, shape, per)
	if err != nil {
		return nil, false, err
	}
	defer m.Close()
	if len(m.Missing()) > 0 {
		return nil, false, nil
	}
	t, err := m.Read(tensor.Indices(shape[0]))
	return t, err == nil, err
}
