package experiment

import (
	"crypto/sha256"
	"errors"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/tensor"
)

// A second run reads the features of hand-written texts from the cache and has the same prompts. Another template,
// other numerics and other classes are other texts. The reason why they cannot be computed is returned.
func TestTextsAreKept(t *testing.T) {
	c := smallConfig("kgcoop") // its loss has the features of hand-written texts
	c.Runtime.Cache = t.TempDir()
	run := func(c Config) (r *engine.Result, computed int) {
		b := open(t, c)
		defer b.Close()
		set := b.Settings()
		set.Client.Texts = func(key [sha256.Size]byte, shape []int,
			compute func() (*tensor.Tensor, error)) (*tensor.Tensor, error) {
			return b.Task.Runtime.keptTexts(key, shape, func() (*tensor.Tensor, error) {
				computed++
				return compute()
			})
		}
		return enginetest.Run(t, b.Experiment, set), computed
	}
	first, computed := run(c)
	if computed == 0 {
		t.Fatal("the method reads no hand-written texts")
	}
	second, again := run(c)
	if again != 0 {
		t.Errorf("a second run computes %d of %d texts again", again, computed)
	}
	if !same(first.Prompts, second.Prompts) {
		t.Error("prompts differ with kept texts")
	}
	for what, change := range map[string]func(*Config){
		"another template": func(c *Config) { c.Data.Template = "a drawing of a {}." },
		"other numerics":   func(c *Config) { c.Runtime.Prepack = "false" },
		"other classes":    func(c *Config) { c.Data.Generator.Classes = []string{"circle", "square", "star", "tree"} },
	} {
		other := c
		change(&other)
		if _, n := run(other); n == 0 {
			t.Errorf("%s: kept texts", what)
		}
	}
	stopped := errors.New("stopped")
	_, err := c.Runtime.keptTexts([sha256.Size]byte{}, []int{1, 1}, func() (*tensor.Tensor, error) {
		return nil, stopped
	})
	if !errors.Is(err, stopped) {
		t.Errorf("%v, want %v", err, stopped)
	}
}
