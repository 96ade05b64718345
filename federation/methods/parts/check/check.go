// Package check checks options of methods: numbers within bounds, words of a list. It imports nothing of this module.
package check

import (
	"errors"
	"strings"
)

// MaxWeight bounds a term of a loss, so that a mistyped number cannot overflow.
const MaxWeight = 1e9

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

// Clipped returns an error for noise without a clip.
func Clipped(clip, noise float64) error {
	if noise > 0 && clip == 0 {
		return errors.New("option clip is 0; noise hides only what is clipped: set a clip, or set noise: 0")
	}
	return nil
}
