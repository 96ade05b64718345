package data

import (
	"os"
	"path/filepath"
)

// FreeBytes returns how many bytes the file system of a folder, which need not exist yet, has left; false if that is
// unknown.
func FreeBytes(dir string) (bytes int64, ok bool) {
	dir, err := filepath.Abs(dir)
	for err == nil {
		if _, missing := os.Stat(dir); missing == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}

	return free(dir)
}
