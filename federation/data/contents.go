package data

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/numerics"
)

// ContentHash is the SHA-256 of an image file's bytes, or of the image's pixels if it does not come from an image file.
// The zero value is unknown and equals no other.
type ContentHash [sha256.Size]byte

// ContentHashes returns the hash of every example of a list, computed on several goroutines. progress may be nil.
func ContentHashes(ctx context.Context, list []Example, workers int,
	progress func(done, total int)) ([]ContentHash, error) {
	var out []ContentHash
	one := func(_ context.Context, i int) (ContentHash, error) { return list[i].hash() }
	err := ParallelInOrder(ctx, len(list), workers, one, func(i int, c ContentHash) error {
		out = append(out, c)
		if n := len(list); progress != nil && n >= progressStep && ((i+1)%progressStep == 0 || i+1 == n) {
			progress(i+1, n)
		}
		return nil
	})

	return out, err
}

// progressStep is the number of images between two calls of progress; shorter lists report no progress.
const progressStep = 512

// hash reads the whole example and returns the hash of its content.
func (e Example) hash() (ContentHash, error) {
	sum := sha256.New()
	var err error
	if e.Load != nil {
		var img image.Image
		if img, err = e.Load(); err == nil {
			writePixels(sum, img)
		}
	} else {
		var f io.ReadCloser
		if f, err = e.open(); err == nil {
			_, err = io.Copy(sum, f)
			f.Close()
		}
	}

	if err != nil {
		return ContentHash{}, e.unreadable(err)
	}

	return ContentHash(sum.Sum(nil)), nil
}

// writePixels writes the size, the kind and the pixels of an image.
func writePixels(w io.Writer, img image.Image) {
	bounds := img.Bounds()
	fmt.Fprintf(w, "%dx%d ", bounds.Dx(), bounds.Dy())
	switch m := img.(type) {
	case *image.Gray:
		fmt.Fprint(w, "gray ", m.Stride)
		w.Write(m.Pix)
	case *image.RGBA:
		fmt.Fprint(w, "rgba ", m.Stride)
		w.Write(m.Pix)
	case *image.NRGBA:
		fmt.Fprint(w, "nrgba ", m.Stride)
		w.Write(m.Pix)
	default:
		var row []byte
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			row = row[:0]
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				r, g, bl, a := img.At(x, y).RGBA()
				for _, v := range []uint32{r, g, bl, a} {
					row = binary.LittleEndian.AppendUint16(row, uint16(v))
				}
			}
			w.Write(row)
		}
	}
}

const contentsMagic = "pfcontents2\n"

// ContentHashes is the function of this name with results kept in the cache, under a digest of the names and file
// stamps of the list, and numerics.Version if code makes pixels of the list.
func (c Cache) ContentHashes(ctx context.Context, list []Example, workers int,
	progress func(done, total int)) ([]ContentHash, error) {
	if c.Dir == "" {
		return ContentHashes(ctx, list, workers, progress)
	}

	name := Digest(list)
	if slices.ContainsFunc(list, func(e Example) bool { return e.Load != nil }) { // another version draws other pixels
		name += fmt.Sprint("-", numerics.Version)
	}

	path := filepath.Join(c.Dir, "contents", name)
	if b, err := os.ReadFile(path); err == nil {
		if out, ok := readContents(b, len(list)); ok {
			return out, nil
		}
		if c.Damaged != nil {
			c.Damaged(path, errors.New("it does not match its checksum"))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, unusable(err)
	}

	out, err := ContentHashes(ctx, list, workers, progress)
	if err != nil {
		return nil, err
	}

	b := []byte(contentsMagic)
	for _, sum := range out {
		b = append(b, sum[:]...)
	}

	sum := sha256.Sum256(b)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, unusable(err)
	}

	if err := atomicfile.Write(path, atomicfile.Bytes(append(b, sum[:]...))); err != nil {
		return nil, unusable(err)
	}

	return out, nil
}

// readContents reads the hashes of n examples, as Cache.ContentHashes writes them.
func readContents(raw []byte, n int) ([]ContentHash, bool) {
	rest, ok := bytes.CutPrefix(raw, []byte(contentsMagic))
	if !ok || len(rest) != (n+1)*sha256.Size {
		return nil, false
	}

	var out []ContentHash
	for sum := range slices.Chunk(rest, sha256.Size) {
		out = append(out, ContentHash(sum))
	}

	return out[:n], out[n] == sha256.Sum256(raw[:len(raw)-sha256.Size])
}
