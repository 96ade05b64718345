package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
)

// Unusable is the error of a set with files that cannot be used as images. It lists them together, so that one repair
// is enough.
type Unusable []Skipped

// mostNamed is the number of files that the error names.
const mostNamed = 20

func (u Unusable) Error() string {
	parts := convert.Slice(u[:min(len(u), mostNamed)], func(f Skipped) string { return f.Name + " " + f.Reason })
	if more := len(u) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}

	what := "this file"
	if len(u) > 1 {
		what = fmt.Sprintf("these %d files", len(u))
	}

	return fmt.Sprintf("%s: remove or repair %s, or set data.corrupt: skip", strings.Join(parts, "; "), what)
}

// AllUnreadable returns an Unusable error with every image of a set that cannot be read in place of the error of the
// first one, for which it reads all images. Other errors are returned as they are.
func (s *Set) AllUnreadable(ctx context.Context, workers int, decode Decoder, err error) error {
	if first := (*BadImage)(nil); !errors.As(err, &first) {
		return err
	}

	var all Unusable
	for _, sp := range s.Splits() {
		if stopped := readEach(ctx, *sp.Examples, workers, decode, func(_ int, bad *BadImage) {
			if bad != nil {
				all = append(all, Skipped{bad.Name, "cannot be read (" + bad.Err.Error() + ")"})
			}
		}); stopped != nil {
			return errors.Join(stopped, err)
		}
	}

	if len(all) == 0 { // it is readable again, or of another set
		return err
	}

	return slices.Clip(all)
}
