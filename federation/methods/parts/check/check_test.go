package check

import (
	"errors"
	"testing"
)

func TestJoinIsOneLine(t *testing.T) {
	if err := Join(nil, errors.New("a"), nil, errors.New("b")); err == nil || err.Error() != "a; b" {
		t.Errorf("%v", err)
	}
	if err := Join(nil, nil); err != nil {
		t.Errorf("%v", err)
	}
}

func TestNoiseNeedsAClip(t *testing.T) {
	const want = "option clip is 0; noise hides only what is clipped: set a clip, or set noise: 0"
	if err := Clipped(0, 1); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := Join(Clipped(1, 1), Clipped(0, 0), Clipped(1, 0)); err != nil {
		t.Errorf("%v", err)
	}
}
