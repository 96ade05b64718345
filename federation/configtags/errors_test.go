package configtags

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"promptfed/runtime/goldentest"
)

// limited has a number that another key bounds.
type limited struct {
	Kind string `config:"kind" in:"a|b"`
	Low  int    `config:"low" in:"0..high"`
	High int    `config:"high"`
}

func TestKeyOf(t *testing.T) {
	lr := KeyErrorf("train.lr", "%v: %w", 3, io.EOF)
	for want, err := range map[string]error{
		"": errors.Join(io.EOF, Check("own.", inner{4}), Check("own.", inner{8}),
			Check("own.", limited{"b", 2, 2})),
		"train.lr":   fmt.Errorf("client 0: %w", errors.Join(io.EOF, lr)),
		"train":      KeyErrorf("train", "%w", lr),
		"own.depth":  Check("own.", inner{5}),
		"own.low":    Check("own.", limited{"a", 3, 2}),
		"train.each": Need(false, "train.each", "%d entries", 2),
	} {
		if got := KeyOf(err); got != want {
			t.Errorf("%v is about %q, want %q", err, got, want)
		}
	}
	if lr.Error() != "train.lr: 3: EOF" || !errors.Is(lr, io.EOF) {
		t.Error(lr)
	}
	goldentest.NoError(t, Need(true, "train.lr", "too large"))
}
