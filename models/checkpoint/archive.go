package checkpoint

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"promptfed/runtime/oneline"
)

// archive is a ZIP file of torch.save (PyTorch 1.6 on) or torch.jit.save: PREFIX/data.pkl beside PREFIX/data/KEY, one
// file per storage, normally not compressed.
type archive struct {
	r       io.ReaderAt
	size    int64 // of the file
	prefix  string
	members map[string]*zip.File
}

// openArchive finds the members of a ZIP of size bytes.
func openArchive(r io.ReaderAt, size int64) (*archive, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a readable ZIP archive (%w); the file is truncated or damaged", err)
	}

	archive := &archive{r: r, size: size, members: map[string]*zip.File{}}
	found := 0
	for _, f := range z.File {
		if _, twice := archive.members[f.Name]; twice {
			return nil, fmt.Errorf("the archive holds %.200q twice", f.Name)
		}
		archive.members[f.Name] = f
		if path.Base(f.Name) == "data.pkl" && strings.Count(f.Name, "/") <= 1 {
			archive.prefix = strings.TrimSuffix(f.Name, "data.pkl")
			found++
		}
	}

	if found != 1 {
		return nil, fmt.Errorf("the ZIP archive holds %d data.pkl, want one; it was not written by torch.save or "+
			"torch.jit.save", found)
	}

	order, err := archive.text("byteorder")
	if err != nil {
		return nil, err
	}

	if order != "" && order != "little" {
		return nil, fmt.Errorf("the archive is %s-endian; only little-endian checkpoints can be read",
			oneline.Short(order))
	}

	return archive, nil
}

// scripted reports whether this is a TorchScript archive, and not a plain torch.save.
func (a *archive) scripted() bool {
	return a.members[a.prefix+"constants.pkl"] != nil
}

// text reads a short member; a missing one is empty.
func (a *archive) text(name string) (string, error) {
	f := a.members[a.prefix+name]
	if f == nil {
		return "", nil
	}

	r, err := f.Open()
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", f.Name, err)
	}
	defer r.Close()

	b, err := io.ReadAll(io.LimitReader(r, 64))
	return strings.TrimSpace(string(b)), err
}

// load unpickles data.pkl.
func (a *archive) load() (any, error) {
	f := a.members[a.prefix+"data.pkl"]
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", f.Name, err)
	}
	defer r.Close()

	v, _, err := readPickle(r, a.persistent, a.scripted())
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", f.Name, err)
	}

	return v, nil
}

// persistent reads ("storage", type, key, device, count) and checks that the member holds count elements.
func (a *archive) persistent(id any) (any, error) {
	st, err := parseStorage(id)
	if err != nil {
		return nil, err
	}

	f, need := a.member(st)
	if f == nil {
		return nil, fmt.Errorf("storage %q is missing from the archive", st.key)
	}

	if f.UncompressedSize64 < uint64(need) {
		return nil, fmt.Errorf("storage %q holds %d bytes, but %d are used", st.key, f.UncompressedSize64, need)
	}

	return st, nil
}

// member returns the file of a storage, nil if there is none, and the number of its bytes that are used.
func (a *archive) member(st *storage) (f *zip.File, size int64) {
	return a.members[a.prefix+"data/"+st.key], st.count * int64(elementSize(st.dtype))
}

func (a *archive) place(st *storage) (at int64, stored bool, err error) {
	f, size := a.member(st)
	if f.Method != zip.Store {
		return 0, false, nil
	}

	if f.CompressedSize64 != f.UncompressedSize64 {
		return 0, false, fmt.Errorf("storage %q is stored with two sizes", st.key)
	}

	at, err = f.DataOffset()
	switch {
	case err != nil:
		err = fmt.Errorf("storage %q: %w", st.key, err)
	case at > a.size || size > a.size-at:
		err = fmt.Errorf("storage %q is said to have %d bytes at %d of a file of %d; the file is truncated or damaged",
			st.key, size, at, a.size)
	}

	return at, true, err
}

// open decompresses a member that is not stored into memory.
func (a *archive) open(st *storage) (r io.ReaderAt, at int64, err error) {
	at, stored, err := a.place(st)
	if stored || err != nil {
		return a.r, at, err
	}

	// Weights hardly compress; a member that expands to twenty times its size is an attack on memory. The archive
	// itself states both sizes, so the size of the file counts too.
	f, size := a.member(st)
	if packed := min(f.CompressedSize64, uint64(a.size)); size > 1<<20 && uint64(size)/20 > packed {
		return nil, 0, fmt.Errorf("storage %q unpacks %d bytes to %d, as no weights do", st.key, f.CompressedSize64,
			size)
	}

	z, err := f.Open()
	if err != nil {
		return nil, 0, fmt.Errorf("storage %q: %w", st.key, err)
	}
	defer z.Close()

	b, err := io.ReadAll(io.LimitReader(z, size))
	if err == nil && int64(len(b)) < size {
		err = io.ErrUnexpectedEOF
	}

	if err != nil {
		return nil, 0, fmt.Errorf("storage %q: %w", st.key, err)
	}

	return bytes.NewReader(b), 0, nil
}

var errTorchTar = errors.New("checkpoints from before PyTorch 0.1.10 (tar files) are not supported; load and save it " +
	"with a newer PyTorch")
