package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/goldentest"
)

// reproduce calls the program of make reproduce in the folder of the repository, for a user with nothing but home. This
// test program contains it, so that go test keeps no results of an older state.
func reproduce(t *testing.T, home string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(os.Args[0], append([]string{"-program", programs.Promptfed, "-out",
		filepath.Join(home, "runs")}, args...)...)
	c.Dir = "../../.."
	c.Env = append(os.Environ(), "PROMPTFED_TEST_REPRODUCE=1", "HOME="+home, "XDG_CACHE_HOME="+
		filepath.Join(home, "caches"), "PROMPTFED_MODELS=", "PROMPTFED_DATA_ROOT=")
	out, err := c.CombinedOutput()
	return string(out), err
}

// Without weights and images, reproduce lists the downloads, the fault of an incomplete set and the times of all
// tables, and runs nothing.
func TestReproduceNamesDownloads(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	out, err := reproduce(t, home, "-data", datatest.Tree(t, "dtd/images/readme.txt"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	goldentest.Contains(t, out, "promptfed pull RN50 (0.3 GB)", "promptfed pull RN101", "promptfed pull ViT-B/32",
		"promptfed pull ViT-B/16 (0.4 GB)", "images food101 ", "images imagenet ",
		"holds no folders: expected one per class", "zero-shot.yaml ", "fedpha/table-1.yaml", "sdfed/table-1.yaml",
		"fedappr/table-1.yaml", "pfeddc/table-1.yaml", "ggtpc/table-1.yaml", "about ")
	if n := strings.Count(out, "nothing of it can run"); n != 6 || strings.Contains(out, "goroutine") {
		t.Errorf("%d tables cannot run\n%s", n, out)
	}
	if _, err := os.Stat(filepath.Join(home, "runs", "reproduced.json")); err == nil {
		t.Error("there is a result without runs")
	}
}

// With random weights, two of them in the folder of promptfed pull and one in that of runtime.models, and a few images
// of two sets (one of them also pooled), reproduce runs the tables of CLIP and of all five papers. It leaves other
// files in its folder alone. The result has published numbers, ours and their differences, and says that the weights
// are not the published ones.
func TestReproduceWithRandomWeights(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	models := filepath.Join(home, "runs", "models")
	for _, dir := range []string{"weights/rn50", "runs/models/rn101", "caches/promptfed/bundles/ViT-B-32",
		"caches/promptfed/bundles/ViT-B-16"} {
		mustRun(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out",
			filepath.Join(home, dir))
	}
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("dtd/images/dotted/%02d.png", i), fmt.Sprintf("dtd/images/woven/%02d.png", i))
		for _, split := range []string{"train", "test"} {
			for _, class := range []string{"cifar100/%s/apple", "cifar100/%s/bed"} {
				names = append(names, fmt.Sprintf(class+"/%02d.png", split, i))
			}
		}
	}
	args := []string{"-models", models, "-data", datatest.Tree(t, names...), "-seeds", "1"}
	for _, set := range []string{"partition.clients=2", "train.rounds=1", "train.batch=4",
		"data.duplicates=keep", "runtime.models=" + filepath.Join(home, "weights")} {
		args = append(args, "-set", set)
	}
	out, err := reproduce(t, home, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := read(t, home, "runs", "reproduced.json")
	var r struct {
		Weights   string
		Programs  []struct{ Version, Commit string }
		Backbones []struct{ Name, Digest, Source string }
		Data      []struct{ Set, Digest string }
		Numerics  []struct{ Processor string }
		Tables    []struct {
			Table string
			Cells []struct {
				Labels                      map[string]string
				Published, Ours, Difference *float64
			}
			Experiments []struct{ Fingerprint string }
		}
	}
	goldentest.NoError(t, json.Unmarshal(text, &r))
	if !strings.HasPrefix(r.Weights, "not the published weights: the checkpoint of rn101, rn50, vit-b16, vit-b32 ") ||
		!strings.Contains(out, r.Weights) || len(r.Backbones) != 4 || len(r.Data) != 3 || len(r.Numerics) != 1 ||
		len(r.Programs) != 1 || len(r.Tables) != 6 {
		t.Errorf("%s", text)
	}
	for _, b := range r.Backbones {
		if len(b.Digest) != 64 || b.Source != "" {
			t.Errorf("backbone %v", b)
		}
	}
	for _, table := range r.Tables {
		compared := 0
		for _, c := range table.Cells {
			if c.Ours == nil || (c.Difference != nil &&
				(c.Published == nil || math.Abs(*c.Ours-*c.Published-*c.Difference) > 2e-4)) {
				t.Errorf("%s: %v", table.Table, c)
			}
			if c.Difference != nil {
				compared++
			}
		}
		if compared == 0 || len(table.Experiments) == 0 || !strings.Contains(out, table.Table) {
			t.Errorf("%s: %d differences, %d experiments", table.Table, compared, len(table.Experiments))
		}
		for _, e := range table.Experiments {
			if len(e.Fingerprint) != 32 {
				t.Errorf("%s: fingerprint %q", table.Table, e.Fingerprint)
			}
		}
	}
	out, err = reproduce(t, home, args...)
	if err != nil || !bytes.Equal(text, read(t, home, "runs", "reproduced.json")) {
		t.Errorf("a second call: %v\n%s", err, out)
	}
}
