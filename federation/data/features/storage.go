package features

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/method"
)

// Storage describes what requests will add to the cache.
type Storage struct {
	Dir     string
	Missing []MissingRows // in the order of kinds, without kinds that are complete
	Bytes   int64         // of all missing rows
	Free    int64         // bytes that the file system has left; negative if unknown
}

// MissingRows describes the missing rows of one kind of features.
type MissingRows struct {
	Name   string // of the kind, in messages
	Images int    // of the requests with missing rows
	Bytes  int64
}

// kinds lists the kinds of features with their names in messages.
var kinds = []struct{ what, name string }{{method.ImageInput, "features"}, {method.PatchesInput, "patch features"},
	{method.TokensInput, "tokens"}, {method.PixelsInput, "pixels"}}

// spare is the number of bytes that must stay free on the file system of the cache.
const spare = 64 << 20

// Storage returns the size of the rows that the cache lacks, or an error if they do not fit on the disk.
func (x Extractor) Storage(ctx context.Context, requests []Request) (Storage, error) {
	return x.storage(ctx, requests, data.FreeBytes)
}

// storage is Storage with a function that returns the free bytes of a folder's file system, if they are known.
func (x Extractor) storage(ctx context.Context, requests []Request, free func(string) (int64, bool)) (Storage, error) {
	storage := Storage{Dir: x.Cache.Dir, Free: -1}
	seen := map[data.Key]bool{}
	for _, kind := range kinds {
		need := MissingRows{Name: kind.name}
		for _, request := range requests {
			if request.What != kind.what {
				continue
			}

			before := need.Bytes
			for _, view := range request.views() {
				source, err := x.source(ctx, request, view)
				if err != nil {
					return storage, err
				}
				key := source.Key()
				if !seen[key] {
					need.Bytes += x.Cache.MissingBytes(key, request.shape(), x.shard(request))
				}
				seen[key] = true
			}

			if need.Bytes > before {
				need.Images += len(request.List)
			}
		}

		if storage.Bytes += need.Bytes; need.Bytes > 0 {
			storage.Missing = append(storage.Missing, need)
		}
	}

	if n, ok := free(storage.Dir); ok {
		if storage.Free = n; storage.Bytes > 0 && storage.Bytes > n-spare {
			return storage, fmt.Errorf("%s: free space there, or set runtime.cache to a folder on another disk",
				storage)
		}
	}

	return storage, nil
}

// Large reports whether the missing rows are worth a line of output.
func (s Storage) Large() bool { return s.Bytes >= 1e8 }

// String describes the missing rows in one line.
func (s Storage) String() string {
	var parts []string
	for _, need := range s.Missing {
		parts = append(parts, fmt.Sprintf("%s of %d images %.2f GB", need.Name, need.Images, float64(need.Bytes)/1e9))
	}

	line := fmt.Sprintf("%s will need in %s", strings.Join(parts, ", "), s.Dir)
	if s.Free >= 0 {
		line += fmt.Sprintf(", where %.2f GB are free", float64(s.Free)/1e9)
	}

	return line
}
