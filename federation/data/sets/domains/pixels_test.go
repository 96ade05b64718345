package domains

import (
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// TestUnpackOnce: many goroutines that read compressed images decompress the file once, and leave no file behind.
func TestUnpackOnce(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	x, err := idxImages(datatest.Testdata(t, "images-idx3-ubyte.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	unpacked := 0
	inflate := x.Inflate
	x.Inflate = func(f *os.File) (io.Reader, error) {
		mu.Lock()
		defer mu.Unlock()
		unpacked++
		return inflate(f)
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			if _, err := x.Image(i % 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(tmp); unpacked != 1 || len(left) > 0 || err != nil {
		t.Errorf("unpacked %d times, left %v, %v", unpacked, left, err)
	}
}

func TestUnpackErrors(t *testing.T) {
	raw := filetest.Read(t, datatest.Testdata(t, "svhn_v7.mat"))
	raw[len(raw)/2] ^= 255 // inside the compressed X
	root := t.TempDir()
	path := filetest.Write(t, filepath.Join(root, "train_32x32.mat"), raw)
	var x *source.Pixels
	goldentest.NoError(t, source.WithFile(path, func(f *os.File, info fs.FileInfo) (err error) {
		x, _, err = matDigits(f, info)
		return err
	}))
	x.Path = path
	_, err := x.Image(4)
	goldentest.WantError(t, err, path+": damaged after", "zlib: invalid checksum: fetch it again")
	// A failure of the machine is not the image's: with corrupt: skip it stops too.
	t.Setenv("TMPDIR", filepath.Join(root, "gone"))
	x, err = idxImages(datatest.Testdata(t, "images-idx3-ubyte.gz"))
	if err != nil {
		t.Fatal(err)
	}
	full := fmt.Errorf("x: %w", &fs.PathError{Op: "write", Err: syscall.ENOSPC})
	for _, load := range []func() (image.Image, error){func() (image.Image, error) { return x.Image(0) },
		func() (image.Image, error) { return nil, full }} {
		s := &data.Set{Classes: []string{"0"}, Train: []data.Example{{ID: "e", Load: load}}}
		err := s.DropUnreadable(t.Context(), 1, nil, nil)
		goldentest.WantError(t, err, "cannot read image e: ")
	}
}
