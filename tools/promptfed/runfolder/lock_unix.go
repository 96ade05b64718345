//go:build unix

package runfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock locks a folder for this process.
func lock(dir string) (release func(), err error) {
	return lockFor(dir, lockFile, syscall.LOCK_EX, "another promptfed works in "+dir)
}

// share locks a folder for processes that run different parts of the same sweep, and one part for this process.
func share(dir, part string) (release func(), err error) {
	all, err := lockFor(dir, lockFile, syscall.LOCK_SH, "a promptfed without --array works in "+dir)
	if err != nil {
		return nil, err
	}
	own, err := lockFor(dir, lockFile+"-"+part, syscall.LOCK_EX, "another promptfed does this part of "+dir)
	if err != nil {
		all()
		return nil, err
	}
	return func() { own(); all() }, nil
}

// lockFor locks a file of a folder.
func lockFor(dir, name string, how int, held string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write into the run folder: %w; use another --out", err)
	}
	switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		f.Close()
		return nil, Occupied{fmt.Errorf("%s; wait until it has ended, or use another --out", held)}
	case err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOSYS) &&
		!errors.Is(err, syscall.ENOLCK): // some network file systems have no locks
		f.Close()
		return nil, fmt.Errorf("cannot lock the run folder: %w; use another --out", err)
	}
	return func() { f.Close() }, nil
}
