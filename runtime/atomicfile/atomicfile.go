package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Write replaces the file at path by the content that fill writes: readers see the old file or the whole new one, also
// after a crash. It writes a temporary file in the same folder, syncs it, renames it to path and syncs the folder.
// After an error (for example, a full disk) the old file is unchanged, the temporary file is removed, and the error
// says so. A device, a pipe or a folder is not replaced.
//
// github.com/google/renameio does not sync the folder and does not build on Windows.
func Write(path string, fill func(io.Writer) error) error {
	return write(path, modeOf(path), true, fill)
}

// WriteUnsynced is Write without the syncs, for files whose content is checked when they are read: after a crash the
// new file may be damaged.
func WriteUnsynced(path string, fill func(io.Writer) error) error {
	return write(path, modeOf(path), false, fill)
}

// modeOf returns the mode of the file at path, or that of a new file.
func modeOf(path string) os.FileMode {
	if st, err := os.Stat(path); err == nil {
		return st.Mode().Perm()
	}
	return 0o644
}

// WritePrivate is Write for secrets: only the owner may read the file, even if others could read an older one.
func WritePrivate(path string, fill func(io.Writer) error) error {
	return write(path, 0o600, true, fill)
}

// patience bounds the time of retries while the process or the machine has too many open files.
const patience = 10 * time.Second

// create creates a temporary file. Too many open files are a temporary state, which ends for example with connections.
func create(dir, pattern string) (f *os.File, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		f, err = os.CreateTemp(dir, pattern)
		full := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
		if !full || time.Now().After(end) {
			return f, err
		}
	}
}

// Abandoned is the age from which a temporary file or folder counts as left by a killed process.
const Abandoned = 24 * time.Hour

// Sweep removes the files of a folder that have an age and match a pattern of path.Match. The temporary files of Write
// match ".NAME.*.tmp".
func Sweep(dir string, age time.Duration, patterns ...string) {
	for _, pattern := range patterns {
		files, _ := fs.Glob(os.DirFS(dir), pattern)
		for _, name := range files {
			path := filepath.Join(dir, name)
			if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) >= age {
				os.Remove(path)
			}
		}
	}
}

func write(path string, mode os.FileMode, synced bool, fill func(io.Writer) error) (err error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("cannot write %s: it is no regular file; name another one", path)
	}

	dir := filepath.Dir(path)
	file, err := create(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
			err = fmt.Errorf("cannot write %s (nothing was changed there): %w", path, err)
		}
	}()

	sync := func() error { return nil }
	if synced {
		sync = file.Sync
	}

	for _, step := range []func() error{func() error { return file.Chmod(mode) }, func() error { return fill(file) },
		sync, file.Close, func() error { return os.Rename(file.Name(), path) }} {
		if err := step(); err != nil {
			return err
		}
	}

	if synced {
		SyncFolder(dir)
	}

	return nil
}
