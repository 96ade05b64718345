package configtags

import "fmt"

// Removed is a setting of other releases, a key or an option, that this release does not have.
type Removed struct {
	Was     string // its value for what every run does now
	Instead string // what to use for another value
}

// Check returns an error for a value other than Was. The configuration in the run folder of another release lists all
// settings, so that Was is allowed.
func (r Removed) Check(name string, value any) error {
	if fmt.Sprint(value) == r.Was {
		return nil
	}
	return fmt.Errorf("%s was removed: %s", name, r.Instead)
}
