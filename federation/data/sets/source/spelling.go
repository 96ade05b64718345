package source

import (
	"fmt"
	"strings"
)

// Spelling records the spelling of names. In prompts, names that differ only in case or in underscores for spaces are
// the same, so a list with both means one class, or one domain, in two spellings.
type Spelling map[string]spelled

type spelled struct{ name, where string }

// Check returns an error if a name was spelled differently before; what is the kind of name, where its place.
func (s Spelling) Check(what, where, name string) error {
	key := strings.ToLower(strings.ReplaceAll(name, "_", " "))
	had, ok := s[key]
	if ok && had.name != name {
		return fmt.Errorf("%s: %s %q is %q in %s: expected one spelling", where, what, name, had.name, had.where)
	}
	if !ok {
		s[key] = spelled{name, where}
	}
	return nil
}
