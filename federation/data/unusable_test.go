package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"strings"
	"testing"
)

// All unreadable images of all splits are in one line; an error about something else stays as it is.
func TestAllUnreadable(t *testing.T) {
	example := func(name string, err error) Example {
		return Example{ID: name, Load: func() (image.Image, error) {
			return image.NewGray(image.Rect(0, 0, 1, 1)), err
		}}
	}
	cut := errors.New("unexpected EOF")
	s := &Set{Train: []Example{example("a", nil), example("b", cut), example("c", cut)},
		Test: []Example{example("d", cut)}}
	first := fmt.Errorf("features: %w", &BadImage{"b", cut})
	const want = "b cannot be read (unexpected EOF); c cannot be read (unexpected EOF); d cannot be read (unexpected " +
		"EOF): remove or repair these 3 files, or set data.corrupt: skip"
	if err := s.AllUnreadable(context.Background(), 2, nil, first); err.Error() != want {
		t.Error(err)
	}
	if err := s.AllUnreadable(context.Background(), 2, nil, cut); err != cut {
		t.Error(err)
	}
	if err := (&Set{Train: s.Train[:1]}).AllUnreadable(context.Background(), 2, nil, first); err != first {
		t.Error(err)
	}
}

// The line names at most 20 files.
func TestUnusable(t *testing.T) {
	if got := (Unusable{{"x.png", "is empty"}}).Error(); got !=
		"x.png is empty: remove or repair this file, or set data.corrupt: skip" {
		t.Error(got)
	}
	got := make(Unusable, 23).Error()
	if !strings.Contains(got, "; and 3 more: remove or repair these 23 files") || strings.Count(got, ";") != 20 {
		t.Error(got)
	}
}
