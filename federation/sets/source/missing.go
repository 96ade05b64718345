package source

// Missing is the error of a published set of which data.root holds nothing at all: it is neither one of the set's
// folders nor does one lie in it. A folder without its lists or images is another error.
type Missing struct{ error }

func (m Missing) Unwrap() error { return m.error }

// NothingFound marks the error of a search that found no folder but data.root.
func NothingFound(err error, searched []string) error {
	if len(searched) == 1 {
		return Missing{err}
	}
	return err
}
