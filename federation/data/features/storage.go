package features

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/method"
)

// Storage is what requests will add to the cache.
type Storage struct {
	Dir   string
	Needs []Need // in the order of kinds, those that lack nothing left out
	Free  int64  // bytes that the file system has left; negative where it does not tell
}

// Need is what one kind of features lacks.
type Need struct {
	What   string // as in a Request
	Images int    // of the requests that lack rows
	Bytes  int64
}

// kinds of features as people call them.
var kinds = []struct{ what, name string }{{method.ImageInput, "features"}, {method.PatchesInput, "patch features"},
	{method.TokensInput, "tokens"}, {method.PixelsInput, "pixels"}}

// spare is what is to stay free on a file system that features are written to.
const spare = 64 << 20

// Storage looks at what the cache holds, and refuses what does not fit on its disk.
func (x Extractor) Storage(ctx context.Context, requests []Request) (Storage, error) {
	s := Storage{Dir: x.Cache.Dir, Free: -1}
	total, seen := int64(0), map[data.Key]bool{}
	for _, kind := range kinds {
		need := Need{What: kind.what}
		for _, r := range requests {
			if r.What != kind.what {
				continue
			}
			before := need.Bytes
			for _, view := range r.views() {
				source, err := x.source(ctx, r, view)
				if err != nil {
					return s, err
				}
				key := source.Key()
				if !seen[key] {
					need.Bytes += x.Cache.Lacking(key, r.shape(), x.shard(r))
				}
				seen[key] = true
			}
			if need.Bytes > before {
				need.Images += len(r.List)
			}
		}
		if total += need.Bytes; need.Bytes > 0 {
			s.Needs = append(s.Needs, need)
		}
	}
	free := x.Free
	if free == nil {
		free = data.Free
	}
	if n, ok := free(s.Dir); ok {
		if s.Free = n; total > 0 && total > n-spare {
			return s, fmt.Errorf("%s: free space there, or set runtime.cache to a folder on another disk", s)
		}
	}
	return s, nil
}

// Large tells whether it is worth a line.
func (s Storage) Large() bool {
	n := int64(0)
	for _, need := range s.Needs {
		n += need.Bytes
	}
	return n >= 1e8
}

// String says it in one line.
func (s Storage) String() string {
	var parts []string
	for _, need := range s.Needs {
		for _, kind := range kinds {
			if kind.what == need.What {
				parts = append(parts, fmt.Sprintf("%s of %d images %.2f GB", kind.name, need.Images,
					float64(need.Bytes)/1e9))
			}
		}
	}
	line := fmt.Sprintf("%s will need in %s", strings.Join(parts, ", "), s.Dir)
	if s.Free >= 0 {
		line += fmt.Sprintf(", where %.2f GB are free", float64(s.Free)/1e9)
	}
	return line
}
