// Package check checks options of methods: numbers within bounds, words of a list.
package check

import (
	"fmt"
	"strings"

	"promptfed/federation/configtags"
)

// MaxWeight bounds a term of a loss, so that a mistyped number cannot overflow.
const MaxWeight = 1e9

// Join puts errors into one line; nil when there is none.
func Join(errs ...error) error {
	var all []any
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}

	if all == nil {
		return nil
	}

	return fmt.Errorf(strings.TrimSuffix(strings.Repeat("%w; ", len(all)), "; "), all...)
}

// OptionErrorf returns an error about an option of a layer. The format continues the text "option NAME".
func OptionErrorf(name, format string, a ...any) error {
	return &configtags.KeyError{Key: name, Err: fmt.Errorf("option %s%w", name, fmt.Errorf(format, a...))}
}

// Clipped returns an error for noise without a clip.
func Clipped(clip, noise float64) error {
	if noise > 0 && clip == 0 {
		return OptionErrorf("clip", " is 0; noise hides only what is clipped: set a clip, or set noise: 0")
	}
	return nil
}
