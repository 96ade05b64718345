package program

import (
	"os/exec"
	"path/filepath"
	"testing"

	"promptfed/runtime/filetest"
)

// Methods with prompts in the image tower train on vision transformers that another tool exported: one that is
// recognised as CLIP's, and one whose blocks are found.
func TestImagePromptsOnAnExport(t *testing.T) {
	layouts := absolute(t, "../../../models/bundle/exported/testdata/layouts")
	config := filepath.Join(t.TempDir(), "visual.yaml")
	filetest.Write(t, config, `
name: visual
method: fedvpt
backbones: [`+layouts+`/vit]
data: {set: synthetic, shots: 2,
  generator: {classes: [circle, square], domains: [cartoon, sketch], train: 4, test: 2, size: 32}}
partition: {kind: dirichlet, clients: 2, beta: 1}
train: {rounds: 1, lr: 0.01, batch: 4}
`)
	for _, tower := range []string{"vit", "mean"} {
		for _, method := range []string{"fedvpt", "pfeddc"} {
			out, err := exec.Command(programs.Promptfed, "run", config, "--set", "method="+method, "--set",
				"backbones="+layouts+"/"+tower, "--out", filepath.Join(t.TempDir(), method)).CombinedOutput()
			if err != nil {
				t.Errorf("%s on %s: %v\n%s", method, tower, err, out)
			}
		}
	}
}

// check passes bundles of other tools: with prompts in all blocks of a recognised vision transformer, and with pixels
// of a small tower that takes values of 8 bits, for which finite differences in float32 are imprecise.
func TestCheckOfExports(t *testing.T) {
	for _, layout := range []string{"vit", "mean", "../siglip", "mobileclip", "winml"} {
		dir := "../../../models/bundle/exported/testdata/layouts/" + layout
		if out, err := exec.Command(programs.Promptfed, "check", dir).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", layout, err, out)
		}
	}
}
