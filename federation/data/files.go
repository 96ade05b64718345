package data

import (
	"fmt"
	"os"
)

// Files lists image files that belong to no set, in the order given.
func Files(paths []string) ([]Example, error) {
	var out []Example
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if st.IsDir() {
			return nil, fmt.Errorf("%s is a folder; name image files", p)
		}
		out = append(out, Example{ID: p, Path: p, Stamp: fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano())})
	}
	return out, nil
}
