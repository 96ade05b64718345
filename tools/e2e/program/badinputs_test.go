//go:build unix

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// good is a correct configuration with a backbone in the program and few synthetic images.
const good = `name: good
method: fedpha
options: {global_tokens: 4, local_tokens: [4]}
data: {set: synthetic, generator: {classes: [circle, square], domains: [cartoon], train: 4, test: 2, size: 16}}
partition:
  kind: iid
  clients: 2
train: {rounds: 1, batch: 4}
`

// badFiles are the files that testdata/bad-inputs.txt names, below DIR.
var badFiles = map[string]string{
	"good.yaml":    good,
	"twin.yaml":    good,
	"typo.yaml":    strings.Replace(good, "clients:", "client:", 1),
	"twice.yaml":   good + "seed: 1\nseed: 2\n",
	"word.yaml":    strings.Replace(good, "clients: 2", "clients: two", 1),
	"tab.yaml":     "name: x\n\tmethod: coop\n",
	"list.yaml":    "- name: x\n",
	"nested.yaml":  "train: 3\n",
	"counts.yaml":  "counts: {}\n",
	"sweep.yaml":   good + "sweep:\n  axes:\n    - {name: batch, key: train.batch, values: [2, 4]}\n",
	"axis.yaml":    good + "sweep:\n  axes:\n    - {name: seed, key: seed, values: [2, 4]}\n",
	"empty.yaml":   good + "sweep:\n  axes:\n    - {name: lr}\n",
	"cell.yaml":    good + "sweep:\n  axes:\n    - {name: lr, key: train.lr, values: [0.1, fast]}\n",
	"seeds.yaml":   good + "sweep: {seeds: [1, 1]}\n",
	"nothing.yaml": "",
	"blank.yaml":   "\n# nothing\n\n",
	"root.yaml":    "data: {root: DIR}\n",
	"grid.yaml":    "sweep:\n  axes:\n    - {name: lr, key: train.lr, values: [0.1]}\n",
	"notes.txt":    "no configuration: [\n",

	"done/config.yaml":  good,
	"done/rounds.jsonl": "{\"round\":0}\n",
	"plan/sweep.json":   "{}\n",
	"cells/sweep.json":  `{"cells": [{"folder": "coop/seed-1"}]}`,
}

// badFolders are folders of images whose files are empty.
var badFolders = map[string][]string{
	"images/none":  nil,
	"images/flat":  {"1.png", "2.png"},
	"images/one":   {"cat/1.png", "cat/2.png"},
	"images/mixed": {"cat/1.png", "x/dog/1.png"},
	"images/tests": {"test/cat/1.png", "test/dog/1.png"},
	"images/both":  {"train/cat/1.png", "train/dog/1.png", "extra/cat/1.png", "extra/dog/1.png"},
	"images/texts": {"cat/1.png", "dog/notes.txt"},
	"images/hole":  {"cat/1.png", "dog/"},
	"images/few":   {"cat/1.png", "dog/1.png"},
}

// Every wrong input ends with its line in testdata/bad-inputs.txt, before any work, and leaves no files. A line with $
// is the command, after variables of the environment; the next line is the exit code and the message; "" is an empty
// word. DIR stands for a folder with badFiles and badFolders.
func TestBadInputs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range badFiles {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	for name, files := range badFolders {
		filetest.Folder(t, dir, filepath.Dir(name))
		goldentest.NoError(t, os.Rename(datatest.Tree(t, files...), filepath.Join(dir, name)))
	}
	text := read(t, "testdata", "bad-inputs.txt")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	cases := 0
	for i := 0; i < len(lines); i++ {
		typed, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			continue
		}
		want := lines[i+1]
		cases++
		t.Run(typed, func(t *testing.T) {
			t.Chdir(t.TempDir())
			words := strings.Fields(strings.ReplaceAll(typed, "DIR", dir))
			for ; words[0] != "promptfed"; words = words[1:] {
				name, value, _ := strings.Cut(words[0], "=")
				t.Setenv(name, value)
			}
			for i, w := range words {
				words[i] = strings.Trim(w, `"`)
			}
			code, text := quiet(t, t.TempDir(), words[1:])
			said := strings.Split(strings.TrimSpace(text), "\n")
			got := strings.ReplaceAll(fmt.Sprint(code, " ", said[len(said)-1]), dir, "DIR")
			if got != want {
				t.Errorf("says\n%s\nwant\n%s", got, want)
			}
			if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
	if cases < 60 {
		t.Errorf("only %d cases", cases)
	}
}
