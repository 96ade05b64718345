package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// PartialPrefix is the name prefix of folders that are being filled.
const PartialPrefix = ".partial-"

// Folder fills a new folder beside dir and then moves it to dir. After an error dir is unchanged, and the new folder is
// removed. Folder replaces an existing dir only if it is empty or contains a file named mark.
//
// No function on all systems swaps two folders, so a replacement takes two renames; after a crash between them the old
// folder is beside dir, under a name that starts with a dot.
func Folder(dir, mark string, fill func(tmp string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}

	old, err := replaceable(dir, mark)
	if err != nil {
		return err
	}

	parent, base := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return fmt.Errorf("cannot make the folder for %s: %w", dir, err)
	}

	sweep(parent)
	tmp, err := os.MkdirTemp(parent, PartialPrefix+base+"-")
	if err != nil {
		return fmt.Errorf("cannot write beside %s: %w", dir, err)
	}
	defer os.RemoveAll(tmp)

	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}

	if err := fill(tmp); err != nil {
		return err
	}

	SyncFolder(tmp)
	if old {
		aside := tmp + ".old"
		if err := os.Rename(dir, aside); err != nil {
			return fmt.Errorf("cannot replace %s: %w", dir, err)
		}
		if err := os.Rename(tmp, dir); err != nil {
			os.Rename(aside, dir)
			return fmt.Errorf("cannot replace %s: %w", dir, err)
		}
		SyncFolder(parent)
		return os.RemoveAll(aside)
	}

	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("cannot put the folder at %s: %w", dir, err)
	}

	SyncFolder(parent)
	return nil
}

// replaceable reports whether dir may be written, and whether there is a folder to replace.
func replaceable(dir, mark string) (old bool, err error) {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !st.IsDir():
		return false, fmt.Errorf("%s exists and is not a folder: choose another place", dir)
	}

	if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
		return true, nil
	}

	list, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}

	if len(list) > 0 {
		return false, fmt.Errorf("%s exists and has no %s: choose another place, or remove it", dir, mark)
	}

	return true, nil
}

func sweep(parent string) {
	list, err := os.ReadDir(parent)
	if err != nil {
		return
	}

	for _, e := range list {
		if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), PartialPrefix) &&
			!strings.HasSuffix(e.Name(), ".old") && time.Since(info.ModTime()) > Abandoned {
			os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// SyncFolder makes renames in a folder durable. A folder that cannot be synced (on some network file systems) is no
// error.
func SyncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}

// LinkOrCopy creates a hard link at to, to the file behind from, or a copy if the file system has no such link (then
// copied is true). The end of ctx stops copying.
func LinkOrCopy(ctx context.Context, from, to string) (copied bool, err error) {
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

	return true, Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, Reader{ctx, in})
		return err
	})
}

// Reader reads from R until Context ends.
type Reader struct {
	Context context.Context
	R       io.Reader
}

// Read returns the cause of the context's end once it has ended. A read in progress is not interrupted.
func (r Reader) Read(p []byte) (int, error) {
	if r.Context.Err() != nil {
		return 0, context.Cause(r.Context)
	}
	return r.R.Read(p)
}
