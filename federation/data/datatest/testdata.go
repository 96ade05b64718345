package datatest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Goldens are the numbers that tools/golden/sets.py wrote down with numpy and scipy.
type Goldens struct {
	Kinds  map[string][]float64
	Tables map[string][2][]string
	Images map[string]struct {
		Labels []int
		Pixels [][]int // image, row, column, then grey or R, G, B
	}
	Coarse []int
}

// Golden reads them.
func Golden(t testing.TB) Goldens {
	t.Helper()
	var g Goldens
	if err := json.Unmarshal([]byte(ReadTestdata(t, "want.json")), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Lay copies files of testdata into a new folder: name there, name in testdata.
func Lay(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	LayIn(t, root, files)
	return root
}

// LayIn copies files of testdata into a folder that is there.
func LayIn(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, from := range files {
		writeFile(t, root, name, []byte(ReadTestdata(t, from)))
	}
}

// Write puts text files into a folder; names have forward slashes.
func Write(t testing.TB, root string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		writeFile(t, root, name, []byte(text))
	}
	return root
}

// ReadTestdata is a file of testdata.
func ReadTestdata(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(Testdata(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Testdata is the path of a file below federation/data/sets/testdata, whichever package's test asks.
func Testdata(t testing.TB, name ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Module(t), "federation", "data", "sets", "testdata"}, name...)...)
}
