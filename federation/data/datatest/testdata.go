package datatest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Goldens are the numbers that tools/golden/sets.py computed with numpy and scipy.
type Goldens struct {
	Kinds  map[string][]float64
	Tables map[string][2][]string
	Images map[string]struct {
		Labels []int
		Pixels [][]int // image, row, column, then grey or R, G, B
	}
	Coarse []int
}

// Golden reads the numbers of want.json.
func Golden(t testing.TB) Goldens {
	t.Helper()
	var g Goldens
	if err := json.Unmarshal([]byte(ReadTestdata(t, "want.json")), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// CopyTestdata copies files of testdata into a new folder; the keys are the new names.
func CopyTestdata(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	CopyTestdataTo(t, root, files)
	return root
}

// CopyTestdataTo copies files of testdata into an existing folder.
func CopyTestdataTo(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, from := range files {
		writeFile(t, root, name, []byte(ReadTestdata(t, from)))
	}
}

// Write writes text files into a folder; names have forward slashes.
func Write(t testing.TB, root string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		writeFile(t, root, name, []byte(text))
	}
	return root
}

// ReadTestdata returns the text of a file of testdata.
func ReadTestdata(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(Testdata(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Testdata returns the path of a file below federation/data/sets/testdata, for tests of any package.
func Testdata(t testing.TB, name ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Module(t), "federation", "data", "sets", "testdata"}, name...)...)
}
