package program

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"promptfed/tools/promptfed/command"
)

// import writes a configuration. With --strict it writes nothing if a setting has no equivalent.
func TestImport(t *testing.T) {
	data := filepath.Join("..", "..", "lab", "dasslimport", "testdata")
	coop := []string{filepath.Join(data, "coop.sh"), filepath.Join(data, "coop.yaml")}
	out := filepath.Join(t.TempDir(), "imported.yaml")
	for _, c := range []struct {
		args []string
		code int
		file bool
	}{
		{append([]string{"import", "--strict", "--out", out}, coop...), failed, false}, // its crops have no equivalent
		{append([]string{"import", "--out", out, "--set", "no"}, coop...), usage, false},
		{[]string{"import", "--out", out, filepath.Join(data, "none.yaml")}, usage, false},
		{append([]string{"import", "--strict", "--set", "data.views=8", "--out", out}, coop...), done, true},
		{append([]string{"import", "--out", out}, coop...), usage, true}, // exists already
		{append([]string{"import", "--force", "--out", out}, coop...), done, true},
	} {
		if code := command.Execute(context.Background(), c.args); code != c.code {
			t.Errorf("%v ends with %d, want %d", c.args, code, c.code)
		}
		if _, err := os.Stat(out); (err == nil) != c.file {
			t.Errorf("after %v the file is there: %v", c.args, err == nil)
		}
	}
}
