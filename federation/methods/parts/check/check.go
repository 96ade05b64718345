// Package check checks options of methods: numbers within bounds, words of a list. It imports nothing of this module.
package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// OneOf checks a word among the allowed ones.
func OneOf(option, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("option %s is %q; it must be one of %s", option, value, strings.Join(allowed, ", "))
	}
	return nil
}

// InRange checks a number: lo <= value <= hi.
func InRange[T int | float64](option string, value, lo, hi T) error {
	if !(value >= lo && value <= hi) {
		return fmt.Errorf("option %s is %v; it must lie between %v and %v", option, value, lo, hi)
	}
	return nil
}

// Bounds that keep a mistyped number from filling the memory.
const (
	MaxTokens = 1024 // of a prompt; no text tower has so long a context
	MaxHidden = 1 << 16
	MaxSteps  = 1 << 20
	MaxWeight = 1e9 // of a term of a loss
)

// Join puts errors into one line; nil when there is none.
func Join(errs ...error) error {
	var texts []string
	for _, err := range errs {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// Noise checks options of clipping and noise.
func Noise(clip, noise, delta float64) error {
	err := Join(InRange("clip", clip, 0, MaxWeight), InRange("noise", noise, 0, 1e6), InRange("delta", delta, 1e-15,
		0.5))
	if noise > 0 && clip == 0 {
		err = Join(err, errors.New("option clip is 0; noise hides only what is clipped: set a clip, or set noise: 0"))
	}
	return err
}
