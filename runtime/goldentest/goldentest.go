// Package goldentest reads the expected values of tests. It imports nothing of this module, and only tests import it.
package goldentest

import (
	"encoding/json"
	"os"
	"testing"
)

// ReadJSON reads a JSON file into a value, and stops the test where it cannot.
func ReadJSON(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}

	if err != nil {
		t.Fatal(path, err)
	}
}
