package experiment

import (
	"path/filepath"
	"testing"

	"promptfed/models/bundle/converted"
	"promptfed/models/tiny"
)

// The bundled backbones, converted with gradient files, give the prompts of the usual way within 1e-5: text prompts,
// some read behind the end token, and prompts of pixels. Methods that prompt blocks are refused.
func TestGradientFiles(t *testing.T) {
	boxed := func(name string) string {
		models := filepath.Join("..", "..", "models", "tiny")
		dir := filepath.Join(t.TempDir(), name)
		o := converted.Options{Vocab: filepath.Join(models, "merges.txt"), Gradients: true}
		if _, err := converted.Convert(filepath.Join(models, name), dir, o); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, name := range tiny.Names() {
		t.Run(name, func(t *testing.T) {
			dir := boxed(name)
			methods := map[string]map[string]any{"promptfl": nil, "fedvpt": {"vision": "pixels"}}
			if name == "tiny-vit-b16" {
				methods["fedpha"] = nil
			}
			for m, options := range methods {
				c := smallConfig(m)
				c.Train.Rounds, c.Backbones, c.Options = 1, []string{name}, options
				want := finish(t, open(t, c))
				c.Backbones = []string{dir}
				got := finish(t, open(t, c))
				if d := distance(t, want.Prompts, got.Prompts); d > 1e-5 || d == 0 {
					t.Errorf("%s: prompts differ by %g", m, d)
				}
			}
			for _, m := range []string{"maple", "fedvpt", "fedlora"} {
				c := smallConfig(m)
				c.Backbones = []string{dir}
				refuses(t, c, name)
			}
		})
	}
}
