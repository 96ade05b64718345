package sets

import (
	"bufio"
	"bytes"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"promptfed/federation/data"
)

// pixels are images of one size in one file, read when they are asked for.
type pixels struct {
	path          string
	count         int
	width, height int
	channels      int // 1 or 3
	order         pixelOrder
	at            int64  // of the first image
	gap           int64  // bytes between images
	raw           []byte // the images themselves, where they are few
	stamp         string
	// inflate reads the images of a file that does not hold them as plain bytes. They are written once to a file
	// without a name in the folder for temporary files, so that SVHN takes 300 MB of disk instead of memory.
	inflate func(*os.File) (io.Reader, error)

	once  sync.Once
	plain *os.File
	err   error
}

// pixelOrder says which of row, column and channel runs fastest.
type pixelOrder int

const (
	planesByRow    pixelOrder = iota // CIFAR, idx: a plane per channel, row by row
	planesByColumn                   // MATLAB: a plane per channel, column by column
	pixelByPixel                     // numpy images: row by row, the channels of a pixel side by side
)

// fileStamp changes when the file does.
func fileStamp(st fs.FileInfo) string {
	return fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
}

// examples lists the images with their labels under a domain.
func (p *pixels) examples(root string, labels []int, domain int) ([]data.Example, error) {
	if len(labels) != p.count {
		return nil, fmt.Errorf("%s: %d images but %d labels", p.path, p.count, len(labels))
	}
	name, err := filepath.Rel(root, p.path)
	if err != nil {
		return nil, err
	}
	out := make([]data.Example, len(labels))
	for i, l := range labels {
		out[i] = data.Example{ID: fmt.Sprintf("%s#%05d", filepath.ToSlash(name), i), Label: l, Domain: domain,
			Stamp: p.stamp,
			Load:  func() (image.Image, error) { return p.image(i) }}
	}
	return out, nil
}

// source is where the images lie as plain bytes, and at which byte they start.
func (p *pixels) source() (io.ReaderAt, int64, func() error, error) {
	if p.raw != nil {
		return bytes.NewReader(p.raw), 0, func() error { return nil }, nil
	}
	if p.inflate == nil {
		f, err := os.Open(p.path)
		if err != nil {
			return nil, 0, nil, err
		}
		return f, p.at, f.Close, nil
	}
	p.once.Do(func() { p.plain, p.err = p.unpack() })
	return p.plain, 0, func() error { return nil }, p.err
}

func (p *pixels) unpack() (*os.File, error) {
	in, err := os.Open(p.path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, err := p.inflate(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	out, err := os.CreateTemp("", "promptfed-images-")
	if err != nil {
		return nil, fmt.Errorf("%s: no place to unpack its images: %w", p.path, err)
	}
	defer os.Remove(out.Name()) // the open file keeps its content where the system allows it
	size := int64(p.count) * int64(p.size())
	n, err := io.Copy(out, io.LimitReader(r, size))
	if err == nil && n < size {
		err = fmt.Errorf("its images end after %d of %d bytes: the file is truncated, fetch it again", n, size)
	}
	if err != nil {
		out.Close()
		err = fmt.Errorf("cannot unpack its images into %s (TMPDIR): %w", os.TempDir(), err)
		return nil, fmt.Errorf("%s: %w", p.path, err) // messages leave out the outer text, which names the file
	}
	return out, nil
}

func (p *pixels) size() int { return p.width * p.height * p.channels }

// image reads one image.
func (p *pixels) image(i int) (image.Image, error) {
	src, at, done, err := p.source()
	if err != nil {
		return nil, err
	}
	defer done()
	raw := make([]byte, p.size())
	if _, err := src.ReadAt(raw, at+int64(i)*(int64(len(raw))+p.gap)); err != nil {
		return nil, fmt.Errorf("%s: image %d: %w", p.path, i, err)
	}
	return p.decode(raw), nil
}

// decode turns the bytes of an image around.
func (p *pixels) decode(raw []byte) image.Image {
	box := image.Rect(0, 0, p.width, p.height)
	plane := p.width * p.height
	index := func(x, y, c int) int {
		switch p.order {
		case planesByColumn:
			return c*plane + x*p.height + y
		case pixelByPixel:
			return (y*p.width+x)*p.channels + c
		}
		return c*plane + y*p.width + x
	}
	if p.channels == 1 {
		img := image.NewGray(box)
		for y := range p.height {
			for x := range p.width {
				img.Pix[y*img.Stride+x] = raw[index(x, y, 0)]
			}
		}
		return img
	}
	img := image.NewRGBA(box)
	for y := range p.height {
		for x := range p.width {
			at := y*img.Stride + 4*x
			for c := range 3 {
				img.Pix[at+c] = raw[index(x, y, c)]
			}
			img.Pix[at+3] = 255
		}
	}
	return img
}

// setArray makes the images those of an array in a pickle.
func (p *pixels) setArray(a *npArray) error {
	if a.dtype.letter != 'u' || a.dtype.size != 1 || a.fortran {
		return fmt.Errorf("%s: images of type %c%d: expected uint8 in C order", p.path, a.dtype.letter, a.dtype.size)
	}
	if a.len() != p.count*p.size() {
		return fmt.Errorf("%s: pixels of shape %v: expected %d images of %d bytes", p.path, a.shape, p.count, p.size())
	}
	switch {
	case a.file == nil:
		p.raw = a.raw
	case a.file.text:
		p.inflate = func(f *os.File) (io.Reader, error) { return a.file.open(f), nil }
	default:
		p.at = a.file.at
	}
	return nil
}

// open reads the bytes that the string stands for.
func (b blob) open(r io.ReaderAt) io.Reader {
	plain := io.NewSectionReader(r, b.at, b.length)
	if b.text {
		return latin1Reader{bufio.NewReaderSize(plain, 1<<16)}
	}
	return plain
}
