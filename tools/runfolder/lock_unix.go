//go:build unix

package runfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock locks a folder for this program.
func lock(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write into the run folder: %w; use another --out", err)
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		f.Close()
		return nil, Occupied{fmt.Errorf("another promptfed works in %s; wait until it has ended, or use another --out",
			dir)}
	case err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOSYS) &&
		!errors.Is(err, syscall.ENOLCK): // some network file systems have no locks
		f.Close()
		return nil, fmt.Errorf("cannot lock the run folder: %w; use another --out", err)
	}
	return func() { f.Close() }, nil
}
