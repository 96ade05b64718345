package datatest

import (
	"os"
	"testing"
)

// Main runs the tests of a package with one temporary folder for all of them, removes the folder and exits, as TestMain
// must.
func Main(m *testing.M, dir *string) {
	var err error
	if *dir, err = os.MkdirTemp("", "promptfed-test"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(*dir)
	os.Exit(code)
}
