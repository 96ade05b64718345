package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
)

// zeros is the SHA-256 of 1 MiB of zeros, computed with sha256sum of GNU coreutils.
const zeros = "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58"

// folder returns a folder with a file of 1 MiB of zeros whose stamp is old enough for the record, and sets an empty
// cache.
func folder(t *testing.T) (dir, file string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_CACHE_HOME"))
	dir = t.TempDir()
	file = filepath.Join(dir, "weights")
	filetest.Write(t, file, make([]byte, leastKept))
	orttest.Settle(t, file)
	return dir, file
}

func info(t *testing.T, file string) os.FileInfo {
	t.Helper()
	st, err := os.Stat(file)
	goldentest.NoError(t, err)
	return st
}

// put overwrites the last byte of a file and restores its modification time.
func put(t *testing.T, file string, b byte) {
	t.Helper()
	st, content := info(t, file), filetest.Read(t, file)
	content[len(content)-1] = b
	filetest.Write(t, file, content)
	goldentest.NoError(t, os.Chtimes(file, st.ModTime(), st.ModTime()))
}

func sumOf(t *testing.T, dir string) string {
	t.Helper()
	have, err := HashFiles(dir, []string{"weights"}, false)
	goldentest.NoError(t, err)
	return have["weights"].SHA256
}

// planted writes a wrong digest into the record, which shows whether the file is read.
func planted(t *testing.T, dir string, change func(*known)) {
	t.Helper()
	r := recorded(dir)
	k, ok := r["weights"]
	if !ok {
		t.Fatal("the file is not in the record")
	}
	k.SHA256 = "planted"
	if change != nil {
		change(&k)
	}
	r["weights"] = k
	path, err := recordOf(dir)
	goldentest.NoError(t, err)
	data, err := r.bytes()
	goldentest.NoError(t, err)
	filetest.Write(t, path, data)
}

// An unchanged file is read once; with all, it is always read.
func TestContentsReadsOnce(t *testing.T) {
	dir, _ := folder(t)
	if got := sumOf(t, dir); got != zeros {
		t.Fatalf("SHA-256 %s, want %s", got, zeros)
	}
	planted(t, dir, nil)
	if got := sumOf(t, dir); got != "planted" {
		t.Errorf("the second time the file was read: %s", got)
	}
	if have, err := HashFiles(dir, []string{"weights"}, true); err != nil || have["weights"].SHA256 != zeros {
		t.Errorf("with all: %v, %v", have, err)
	}
	if got := sumOf(t, dir); got != zeros {
		t.Errorf("what was read did not replace the record: %s", got)
	}
}

// The record is not used for a changed file, for another file in its place, for a file elsewhere, or if the record is
// damaged.
func TestRecordIsNotBelieved(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, dir, file string){
		"a write that leaves size and time": func(t *testing.T, dir, file string) {
			if runtime.GOOS == "windows" {
				t.Skip("the system does not tell")
			}
			planted(t, dir, nil)
			put(t, file, 0)
		},
		"another file in its place": func(t *testing.T, dir, file string) {
			planted(t, dir, nil)
			st := info(t, file)
			filetest.Write(t, file+"2", make([]byte, leastKept))
			goldentest.NoError(t, os.Chtimes(file+"2", st.ModTime(), st.ModTime()))
			goldentest.NoError(t, os.Rename(file+"2", file))
		},
		"another number of the file": func(t *testing.T, dir, file string) {
			planted(t, dir, func(k *known) { k.Stamp += "0" })
		},
		"another path": func(t *testing.T, dir, file string) {
			planted(t, dir, func(k *known) { k.Path += "0" })
		},
		"a damaged record": func(t *testing.T, dir, file string) {
			planted(t, dir, nil)
			path, err := recordOf(dir)
			goldentest.NoError(t, err)
			data := filetest.Read(t, path)
			data = bytes.Replace(data, []byte("planted"), []byte("plantef"), 1)
			filetest.Write(t, path, data)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, file := folder(t)
			if got := sumOf(t, dir); got != zeros {
				t.Fatal(got)
			}
			change(t, dir, file)
			if got := sumOf(t, dir); got != zeros {
				t.Errorf("the record was believed: %s", got)
			}
		})
	}
}

// A file that could change without a new stamp is not recorded, and neither is a small file.
func TestNotKept(t *testing.T) {
	dir, file := folder(t)
	soon := time.Now().Add(time.Hour)
	goldentest.NoError(t, os.Chtimes(file, soon, soon))
	if sumOf(t, dir); len(recorded(dir)) > 0 {
		t.Error("a file of the future is kept")
	}
	filetest.Write(t, file, "small")
	orttest.Settle(t, file)
	if sumOf(t, dir); len(recorded(dir)) > 0 {
		t.Error("a small file is kept")
	}
}

// A cache that is missing or cannot be written only costs time.
func TestContentsWithoutCache(t *testing.T) {
	dir, _ := folder(t)
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(t, file, "")
	for _, cache := range []string{file, "/proc/none", ""} {
		t.Setenv("XDG_CACHE_HOME", cache)
		t.Setenv("HOME", cache)
		for range 2 {
			if got := sumOf(t, dir); got != zeros {
				t.Errorf("cache %q: %s", cache, got)
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// The record keeps files of earlier calls, and is limited in folders, files and bytes.
func TestRecordIsBounded(t *testing.T) {
	dir, file := folder(t)
	Hashes{}.Save(dir)
	if path, err := recordOf(dir); err != nil || exists(path) {
		t.Errorf("nothing is recorded in %s, %v", path, err)
	}
	if err := os.Link(file, file+"2"); err != nil {
		t.Skip(err)
	}
	orttest.Settle(t, file)
	for _, name := range []string{"weights", "weights2"} {
		if _, err := HashFiles(dir, []string{name}, false); err != nil {
			t.Fatal(err)
		}
	}
	if r := recorded(dir); len(r) != 2 {
		t.Errorf("the record holds %v", r)
	}
	many := Hashes{}
	for i := range maxRecorded {
		name := strings.Repeat("./", i) + "weights"
		many[name] = known{Stamp: "x"}
	}
	many.Save(dir)
	if r := recorded(dir); len(r) != maxRecorded {
		t.Errorf("the record holds %d files", len(r))
	}
	path, err := recordOf(dir)
	goldentest.NoError(t, err)
	old := time.Now().Add(-time.Hour)
	for i := range maxFolders {
		name := filepath.Join(filepath.Dir(path), "old"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
		filetest.Write(t, name, "")
		goldentest.NoError(t, os.Chtimes(name, old, old))
	}
	many.Save(dir)
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != maxFolders {
		t.Errorf("%d folders are recorded, %v", len(list), err)
	}
	if len(recorded(dir)) != maxRecorded {
		t.Error("the newest record is gone")
	}
}

// Verify names in one line the file that differs from bundle.json.
func TestVerify(t *testing.T) {
	dir, file := folder(t)
	whole := map[string]File{"weights": {leastKept, zeros}}
	check := func(want map[string]File, parts ...string) {
		t.Helper()
		for _, all := range []bool{false, true} {
			err := Verify(dir, want, all, "do this")
			switch {
			case len(parts) == 0 && err != nil:
				t.Error(err)
			case len(parts) > 0 && err == nil:
				t.Errorf("no error with %q", parts)
			}
			for _, p := range parts {
				if err != nil && (!strings.Contains(err.Error(), p) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%v, want one line with %q", err, p)
				}
			}
		}
	}
	check(whole)
	check(map[string]File{"weights": {}})
	check(map[string]File{"weights": {0, zeros}})
	check(map[string]File{"weights": {leastKept + 1, ""}}, file, "has 1048576 bytes, bundle.json says 1048577",
		"do this")
	check(map[string]File{"none": {}}, "none is missing, but bundle.json lists it: do this")
	check(map[string]File{".": {}}, "is not a file")
	put(t, file, 1)
	check(whole, file, "SHA-256 ", "bundle.json says "+zeros[:12]+": the file was changed or damaged; do this")
}

// FuzzRecord: no record makes the reader panic, and an accepted record is accepted again after it was written.
func FuzzRecord(f *testing.F) {
	data, err := Hashes{"weights": {"/a/weights", "1 2 3", File{4, zeros}}}.bytes()
	goldentest.NoError(f, err)
	f.Add(data, false)
	f.Add([]byte("\n{}"), false)
	f.Add([]byte(`{"a":{"path":1}}`), true)
	f.Add([]byte(`null`), true)
	f.Fuzz(func(t *testing.T, data []byte, signed bool) {
		if signed {
			data = withSum(data)
		}
		r := parseRecord(data)
		if r == nil {
			return
		}
		again, err := r.bytes()
		if err != nil || len(parseRecord(again)) != len(r) {
			t.Fatalf("%v of %v, %v", parseRecord(again), r, err)
		}
	})
}
