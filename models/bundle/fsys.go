package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// writeFile writes a file and syncs it.
func writeFile(path string, data []byte) error {
	return fill(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// fill creates a file that must not exist yet, lets write write it, and syncs it.
func fill(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// link makes to a hard link of the file behind from, or a copy where the file system has no such link; copied tells
// which.
func link(ctx context.Context, from, to string) (copied bool, err error) {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return false, err
	}
	if os.Link(real, to) == nil {
		return false, nil
	}
	in, err := os.Open(real)
	if err != nil {
		return false, err
	}
	defer in.Close()
	return true, fill(to, func(w io.Writer) error {
		_, err := io.Copy(w, reader{ctx, in})
		return err
	})
}

// reader stops when ctx ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

func fileOf(path string) (File, error) { return hashFile(context.Background(), path) }

func hashFile(ctx context.Context, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, reader{ctx, f})
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return File{n, hex.EncodeToString(h.Sum(nil))}, nil
}

// partial starts the names of folders that are being filled; what is older than a day was left by a program that died.
const partial = ".partial-"

// replaceFolder fills a new folder beside dir and then puts it in dir's place. When anything fails, dir stays as it was
// and the new folder is removed. An existing dir is replaced only if it is empty or a bundle.
//
// Nothing on all systems swaps two folders, so replacing a bundle takes two renames; a crash between them leaves the
// old bundle beside its place under a name that starts with a dot.
func replaceFolder(dir string, write func(tmp string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	old, err := replaceable(dir)
	if err != nil {
		return err
	}
	parent, base := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return fmt.Errorf("cannot make the folder for %s: %w", dir, err)
	}
	sweep(parent)
	tmp, err := os.MkdirTemp(parent, partial+base+"-")
	if err != nil {
		return fmt.Errorf("cannot write beside %s: %w", dir, err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := write(tmp); err != nil {
		return err
	}
	syncFolder(tmp)
	if old {
		aside := tmp + ".old"
		if err := os.Rename(dir, aside); err != nil {
			return fmt.Errorf("cannot replace %s: %w", dir, err)
		}
		if err := os.Rename(tmp, dir); err != nil {
			os.Rename(aside, dir)
			return fmt.Errorf("cannot replace %s: %w", dir, err)
		}
		syncFolder(parent)
		return os.RemoveAll(aside)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("cannot put the bundle at %s: %w", dir, err)
	}
	syncFolder(parent)
	return nil
}

// replaceable tells whether dir may be written, and whether there is a bundle to be replaced. An empty folder is
// removed.
func replaceable(dir string) (old bool, err error) {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !st.IsDir():
		return false, fmt.Errorf("%s exists and is not a folder: choose another place for the bundle", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err == nil {
		return true, nil
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if len(list) > 0 {
		return false, fmt.Errorf("%s exists and is not a bundle: choose another place, or remove it", dir)
	}
	return false, os.Remove(dir)
}

func sweep(parent string) {
	list, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), partial) &&
			!strings.HasSuffix(e.Name(), ".old") && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

func syncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}
