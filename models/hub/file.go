package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"promptfed/runtime/atomicfile"
)

// Limits of files, in bytes.
const (
	maxWeights = 50_000_000_000 // of huggingface_hub without Xet
	maxSmall   = 64 << 20       // of a tokenizer
)

// Progress is called with the number of bytes that are there.
type Progress func(what string, done, total int64)

// file is a file of a server.
type file struct {
	what    string // for messages
	address string
	sum     string // SHA-256, or SHA-1 of the file as a git blob, in hex
	size    int64  // below 0: unknown
	limit   int64  // largest size that is fetched
}

// fits checks a size that a server states.
func (f file) fits(size int64) error {
	if size > f.limit {
		return fmt.Errorf("%s: %d bytes, at most %d are fetched: is it a CLIP?", f.what, size, f.limit)
	}
	return nil
}

// sums matches the two kinds of checksums.
var sums = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// check compares the size and the checksum of a local file.
func (f file) check(ctx context.Context, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()

	st, err := in.Stat()
	if err != nil {
		return err
	}

	h, name := sha256.New(), "SHA-256"
	if len(f.sum) == 2*sha1.Size {
		h, name = sha1.New(), "SHA-1"
		fmt.Fprintf(h, "blob %d\x00", st.Size())
	}

	if _, err := io.Copy(h, atomicfile.Reader{Context: ctx, R: in}); err != nil {
		return err
	}

	if got := hex.EncodeToString(h.Sum(nil)); got != f.sum {
		return fmt.Errorf("%w: %s %.12s of %d bytes, expected %.12s", errDamaged, name, got, st.Size(), f.sum)
	}

	return nil
}

var errDamaged = errors.New("wrong content")

// lock waits for a lock that Python's huggingface_hub also takes.
func lock(ctx context.Context, path string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, unwritable(err)
	}

	l := flock.New(path, flock.SetPermissions(0o666)) // also for other users of the cache
	_, err = l.TryLockContext(ctx, 100*time.Millisecond)
	switch {
	case ctx.Err() != nil:
		l.Close()
		return nil, context.Cause(ctx)
	case errors.Is(err, fs.ErrPermission):
		return nil, unwritable(err)
	} // some network file systems have no locks; contents are checked in any case

	return func() { l.Close() }, nil
}

// unwritable explains an error of writing.
func unwritable(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: free space there, or set XDG_CACHE_HOME or HF_HOME to a folder on another disk, and "+
			"repeat the command", err)
	}
	return fmt.Errorf("%w: set XDG_CACHE_HOME or HF_HOME to a folder that you can write", err)
}

// fetch downloads a file to path, unless it is there. The part of an earlier call is continued. The caller holds a
// lock for path.
func (h *Hub) fetch(ctx context.Context, wanted file, path string, progress Progress) error {
	if err := wanted.check(ctx, path); err == nil || !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if err := wanted.fits(wanted.size); err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return unwritable(err)
	}

	part := path + ".incomplete"
	kept := sizeOf(part)
	for {
		err := h.retry(ctx, func() (bool, error) {
			before := sizeOf(part)
			err := h.download(ctx, wanted, part, progress)
			if p := (passing{}); isUnreachable(err) && !h.offline && !errors.As(err, &p) {
				err = passing{error: err}
			}
			return sizeOf(part) > before+1<<20, err
		})

		if err == nil {
			err = wanted.check(ctx, part)
		}

		switch {
		case err == nil:
			if err := os.Rename(part, path); err != nil {
				return unwritable(err)
			}
			atomicfile.SyncFolder(filepath.Dir(path))
			return nil
		case !errors.Is(err, errDamaged):
			return err
		}

		if e := os.Remove(part); e != nil {
			return unwritable(e)
		}

		if kept == 0 {
			return fmt.Errorf("%s: %w: the file was changed on its way, or the server is wrong; nothing was kept: try "+
				"again", wanted.what, err)
		}

		kept = 0 // what an earlier call had left was wrong
	}
}

func sizeOf(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// download makes one attempt at the rest of a file.
func (h *Hub) download(ctx context.Context, wanted file, part string, progress Progress) (err error) {
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return unwritable(err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = unwritable(e)
		}
	}()

	had, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}

	from := had
	if from > 0 && from == wanted.size {
		return nil
	}

	if wanted.size >= 0 && from > wanted.size {
		from = 0
	}

	answer, err := h.send(ctx, http.MethodGet, wanted.address, wanted.what, from)
	if errors.Is(err, errRange) {
		out.Truncate(0)
	}

	if err != nil {
		return err
	}
	defer answer.Body.Close()

	if answer.StatusCode != http.StatusPartialContent || !strings.HasPrefix(answer.Header.Get("Content-Range"),
		"bytes "+strconv.FormatInt(from, 10)+"-") {
		from = 0 // the whole file
	}

	if had > from {
		if err := out.Truncate(from); err != nil {
			return unwritable(err)
		}
	}

	if _, err := out.Seek(from, io.SeekStart); err != nil {
		return err
	}

	total := wanted.size
	if total < 0 && answer.ContentLength >= 0 {
		total = from + answer.ContentLength
	}

	if err := wanted.fits(total); err != nil {
		return err
	}

	counter := &counter{Writer: out, done: from, report: func(done int64) {
		progress(wanted.what, done, max(done, total))
	}}
	most := wanted.limit
	if total >= 0 {
		most = total
	}

	_, err = io.Copy(counter, io.LimitReader(atomicfile.Reader{Context: ctx, R: answer.Body}, most-from+1))

	switch {
	case counter.failed != nil:
		return fmt.Errorf("%s: %w", wanted.what, unwritable(counter.failed))
	case counter.done > most:
		out.Truncate(0)
		return fmt.Errorf("%s: %s sends more than the %d bytes that it announced: try again", wanted.what,
			answer.Request.URL.Host, most)
	case err == nil && (total < 0 || counter.done == total):
		if err := out.Sync(); err != nil {
			return fmt.Errorf("%s: %w", wanted.what, unwritable(err))
		}
		return nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}

	return noAnswer(wanted.what, answer.Request.URL.Host,
		fmt.Errorf("the connection broke at %d of %d bytes, which are "+
			"kept: %w", counter.done, total, causeOf(ctx, err)))
}

// counter counts the bytes that arrive in a file, and keeps the error of writing.
type counter struct {
	io.Writer
	done   int64
	report func(int64)
	failed error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.done += int64(n)
	c.failed = err
	c.report(c.done)
	return n, err
}
