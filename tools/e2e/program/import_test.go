package program

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
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

// A script's files are read from its folder or one above, unless they are given.
func TestImportReadsNamedFiles(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"repo/scripts/main.sh": "CFG=vit_b16\npython main.py --root D " +
		"--trainer PromptFL --dataset-config-file configs/pets.yaml --config-file configs/${CFG}.yaml " +
		"--extra-config-file gone.yaml\n",
		"repo/configs/pets.yaml": "DATASET: {NAME: OxfordPets}\n", "repo/configs/vit_b16.yaml": "OPTIM: {LR: 0.5}\n",
		"mine/vit_b16.yaml": "OPTIM: {LR: 0.25}\n"} {
		at := filepath.Join(dir, filepath.FromSlash(path))
		filetest.Write(t, at, text)
	}
	script, out := filepath.Join(dir, "repo", "scripts", "main.sh"), filepath.Join(dir, "out.yaml")
	for lr, more := range map[string][]string{"lr: 0.5 ": nil,
		"lr: 0.25 ": {filepath.Join(dir, "mine", "vit_b16.yaml")}} {
		said := mustRun(t, append([]string{"import", "--force", "--out", out, script}, more...)...)
		if got := string(read(t, out)); !strings.Contains(got, lr) || !strings.Contains(got, "set: oxfordpets") {
			t.Errorf("%s is not in\n%s", lr, got)
		}
		if strings.Count(said, "also give that file") != 1 || !strings.Contains(said, "gone.yaml: also give") {
			t.Errorf("%s", said)
		}
	}
}
