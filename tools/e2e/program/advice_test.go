package program

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
)

// A run warns that its backbone is a toy, that a warm-up covers all of its rounds, and that it ends below the
// hand-written prompts, because its learning rate destroys the prompt: the second round says so, once. The summary
// keeps the warnings for reports.
// Warnings that do not apply are absent.
func TestAdvice(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	text := `
name: advice
method: fedappr
backbones: [tiny-vit-b16, tiny-vit-b32]
data: {set: synthetic, generator: {classes: [circle, square, star, house], domains: [photo], train: 4, test: 6,
  difficulty: 0, size: 32}}
partition: {kind: iid, clients: 2}
train: {rounds: 3, lr: 1000, batch: 4, schedule: {warmup: 3, warmup_lr: 1000}}
runtime: {cache: ` + filepath.Join(dir, "cache") + "}\n"
	filetest.Write(t, config, text)
	lines := []string{"note: backbones tiny-vit-b16, tiny-vit-b32 are toys for trying the program", "promptfed convert",
		"warning: FedAPPR's adversarial term never acts: option warmup leaves it out of the first 20 rounds, and " +
			"the run has 3",
		"warning: train.lr is never reached: train.schedule.warmup, 3, covers all 3 rounds",
		"warning: round 2: accuracy is below zero-shot accuracy and does not rise: try fewer tokens " +
			"(options.tokens: 4), a lower learning rate (train.lr: 250)"}
	out, errs, code := call("run", config, "--out", filepath.Join(dir, "low"))
	for _, want := range lines {
		if strings.Count(errs, want) != 1 {
			t.Errorf("exit %d: it does not say %q once in\n%s", code, want, errs)
		}
	}
	if !strings.Contains(out, "advice (") || !strings.Contains(out, ") ends below zero-shot on the same test images") {
		t.Errorf("it does not say that it ends below zero-shot in\n%s", out)
	}
	if s := string(read(t, dir, "low", "summary.json")); !strings.Contains(s, "never acts") {
		t.Errorf("the summary keeps no warning: %s", s)
	}
	_, errs, code = call("trace", config, "--rounds", "1", "--out", filepath.Join(dir, "trace"))
	if code != 0 || !strings.Contains(errs, "covers all 1 rounds") {
		t.Errorf("trace: exit %d, and says\n%s", code, errs)
	}
	mustRun(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out", filepath.Join(dir, "own"))
	out, errs, code = call("run", config, "--out", filepath.Join(dir, "well"), "--set", "backbones=["+
		filepath.Join(dir, "own")+"]", "--set", "options.warmup=1", "--set", "train.schedule.warmup=1", "--set",
		"train.lr=0", "--set", "train.schedule.warmup_lr=0")
	if code != 0 || strings.Contains(errs, "toy") || strings.Contains(errs, "never") {
		t.Errorf("exit %d, and says\n%s%s", code, errs, out)
	}
}
