package experiment

import (
	"crypto/sha256"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/tensor"
)

// A second run reads the features of hand-written texts from the cache and has the same prompts. Another template,
// other numerics and other classes are other texts.
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
	other := c
	other.Data.Template = "a drawing of a {}."
	if _, n := run(other); n == 0 {
		t.Error("another template gives kept texts")
	}
	other = c
	other.Runtime.Prepack = "false"
	if _, n := run(other); n == 0 {
		t.Error("other numerics give kept texts")
	}
	other = c
	other.Data.Generator.Classes = []string{"circle", "square", "star", "tree"}
	if _, n := run(other); n == 0 {
		t.Error("other classes give kept texts")
	}
}
