package source

import (
	"fmt"
	"strings"
)

// Spelling remembers how names were spelled. Names that differ only in capitals, or in underscores in the place of
// spaces, are one name to prompts, so that a list that has both means one class, or one domain, in two spellings.
type Spelling map[string]spelled

type spelled struct{ name, where string }

// One refuses a name that was spelled otherwise before; what says what it is of, where where it stands.
func (s Spelling) One(what, where, name string) error {
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
