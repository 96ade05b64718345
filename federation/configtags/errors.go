package configtags

import (
	"errors"
	"fmt"
)

// KeyError is an error about the value of a configuration key, or about a section.
type KeyError struct {
	Key string // with its sections, as in train.lr; of an option before its method is known, its name alone
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// KeyErrorf returns a KeyError whose text begins with the key and a colon.
func KeyErrorf(key, format string, a ...any) error {
	return &KeyError{key, fmt.Errorf("%s: %w", key, fmt.Errorf(format, a...))}
}

// Need is KeyErrorf unless a condition holds. The first error of several conditions is cmp.Or of them.
func Need(ok bool, key, format string, a ...any) error {
	if ok {
		return nil
	}
	return KeyErrorf(key, format, a...)
}

// KeyOf returns the key of the outermost KeyError in an error, or "".
func KeyOf(err error) string {
	if wrong, ok := errors.AsType[*KeyError](err); ok {
		return wrong.Key
	}
	return ""
}
