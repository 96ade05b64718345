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

// Within checks a number: lo <= value <= hi.
func Within[T int | float64](option string, value, lo, hi T) error {
	if !(value >= lo && value <= hi) {
		return fmt.Errorf("option %s is %v; it must lie between %v and %v", option, value, lo, hi)
	}
	return nil
}

// Bounds that keep a slip of the pen from filling the memory.
const (
	MaxTokens = 1024 // of a prompt; no text tower has so long a context
	MaxHidden = 1 << 16
	MaxSteps  = 1 << 20
	MaxWeight = 1e9 // of a term of a loss
)

// Join puts errors into one line, or gives nil when there is none.
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
