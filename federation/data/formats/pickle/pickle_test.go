package pickle

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// TestPickleTables reads lists of paths and labels in every format that numpy.load reads.
func TestPickleTables(t *testing.T) {
	want := datatest.Golden(t).Tables
	for _, name := range slices.Sorted(maps.Keys(want)) {
		raw := datatest.ReadTestdata(t, name)
		paths, labels, err := ReadPathsAndLabels(strings.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Error(err)
			continue
		}
		text := convert.Slice(labels, func(l any) string { return fmt.Sprint(l) })
		if w := want[name]; !slices.Equal(paths, w[0]) || !slices.Equal(text, w[1]) {
			t.Errorf("%s: %q %q", name, paths, text)
		}
	}
	if len(want) != 10 {
		t.Errorf("%d tables", len(want))
	}
}

// TestHostilePickles: pickles that would run code or take much memory are errors.
func TestHostilePickles(t *testing.T) {
	for name, c := range map[string]struct{ raw, words string }{
		"os.system":        {"\x80\x02cos\nsystem\n(U\x04trueRtR.", "os.system"},
		"builtins.eval":    {"\x80\x02c__builtin__\neval\nU\x011\x85R.", "__builtin__.eval"},
		"an old pickle":    {"(dp0\nS'data'\np1\n.", "protocol 2"},
		"a class instance": {"\x80\x02(i__main__\nA\n.", "protocol 2"},
		"a persistent id":  {"\x80\x02K\x00Q.", "not expected"},
		"a huge length":    {"\x80\x02T\xff\xff\xff\x7fabc.", "truncated"},
		"a huger length":   {"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.", "truncated"},
		"no stop":          {"\x80\x02]", "truncated"},
		"nothing":          {"", "truncated"},
		"deep":             {"\x80\x02" + strings.Repeat("(", 1000), "nests"},
		"many objects":     {"\x80\x02" + strings.Repeat("]", pickleObjects+1), "objects"},
		"an empty stack":   {"\x80\x02R.", "pickle"},
		"a shape too large": {"\x80\x02cnumpy.core.multiarray\n_reconstruct\n" +
			")R(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86cnumpy\ndtype\nU\x02u1\x85R\x89U\x00tb.", "shape"},
		"fewer bytes": {"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x09\x85cnumpy\ndtype\n" +
			"U\x02u1\x85R\x89U\x03abctb.", "3 bytes"},
		"elements of no size": {"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R(K\x01J\xff\xff\xff\x7f\x85cnumpy\n" +
			"dtype\nU\x02U0\x85R\x89U\x00tb.", "0 bytes"},
		"an unknown type": {"\x80\x02cnumpy\ndtype\nU\x03c16\x85R.", "c16"},
	} {
		_, err := Read(strings.NewReader(c.raw), 0, int64(len(c.raw)))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		goldentest.WantError(t, err, c.words)
	}
}

func TestPickleTableErrors(t *testing.T) {
	for name, c := range map[string]struct{ raw, words string }{
		"one list":      {"\x80\x02](U\x01aU\x01bU\x01ce.", "pair"},
		"lengths":       {"\x80\x02](U\x01aU\x01be](U\x01ae\x86.", "2 paths but 1 labels"},
		"a list inside": {"\x80\x02](]](K\x01e\x86e]\x86.", "element 0"},
		"a number":      {"\x80\x02](K\x01e](K\x01e\x86.", "1 where a path"},
		"numpy header":  {"\x93NUMPY\x01\x00\x08\x00{'descr'}", "header"},
		"cut header":    {"\x93NUMPY\x01\x00\xff\x00{'descr'}", "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ReadPathsAndLabels(strings.NewReader(c.raw), int64(len(c.raw)))
			goldentest.WantError(t, err, c.words)
		})
	}
}

func FuzzPickle(f *testing.F) {
	for name := range datatest.Golden(f).Tables {
		f.Add(filetest.Read(f, datatest.Testdata(f, name)))
	}
	for _, name := range []string{"cifar-10-batches-py/data_batch_2", "cifar_protocol2", "cifar_protocol5",
		"digits.pkl"} {
		f.Add(filetest.Read(f, datatest.Testdata(f, name)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bytes.NewReader(raw)
		a, b, err := ReadPair(r, int64(len(raw)))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q is more than a line", err)
			}
			return
		}
		for _, v := range []any{a, b} {
			if _, err := Values(r, v); err != nil && strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q is more than a line", err)
			}
			if x, ok := v.(*Array); ok && x.File != nil && (x.File.At < 0 ||
				x.File.At+x.File.Length > int64(len(raw))) {
				t.Fatalf("%+v lies outside of %d bytes", *x.File, len(raw))
			}
		}
	})
}
