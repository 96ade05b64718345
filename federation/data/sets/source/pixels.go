package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"promptfed/federation/data"
	"promptfed/federation/data/formats/pickle"
)

// Pixels holds images of one size in one file, which are read on demand.
type Pixels struct {
	Path          string
	Count         int
	Width, Height int
	Channels      int // 1 or 3
	Order         pixelOrder
	At            int64  // of the first image
	Gap           int64  // bytes between images
	Raw           []byte // the pixels themselves, if there are few
	Stamp         string
	// Inflate returns a reader of the images of a file that does not hold them as plain bytes. They are written once to
	// an unlinked temporary file, so that SVHN takes 300 MB of disk and not of memory.
	Inflate func(*os.File) (io.Reader, error)

	once  sync.Once
	plain *os.File
	err   error
}

// pixelOrder is the order of rows, columns and channels.
type pixelOrder int

const (
	planesByRow    pixelOrder = iota // CIFAR, idx: one plane for each channel, row by row
	PlanesByColumn                   // MATLAB: one plane for each channel, column by column
	PixelByPixel                     // numpy images: row by row, with the channels of a pixel adjacent
)

// WithFile calls read with an open file. Errors of read get the name of the file.
func WithFile(path string, read func(file *os.File, info fs.FileInfo) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()

	info, err := file.Stat()
	if err == nil {
		err = read(file, info)
	}

	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	return nil
}

// Examples returns the images with their labels, in one domain.
func (p *Pixels) Examples(root string, labels []int, domain int) ([]data.Example, error) {
	if len(labels) != p.Count {
		return nil, fmt.Errorf("%s: %d images but %d labels", p.Path, p.Count, len(labels))
	}

	name, err := filepath.Rel(root, p.Path)
	if err != nil {
		return nil, err
	}

	out := make([]data.Example, len(labels))
	for i, l := range labels {
		out[i] = data.Example{ID: fmt.Sprintf("%s#%05d", filepath.ToSlash(name), i), Label: l, Domain: domain,
			Stamp: p.Stamp,
			Load:  func() (image.Image, error) { return p.Image(i) }}
	}

	return out, nil
}

func (p *Pixels) unpack() (*os.File, error) {
	in, err := os.Open(p.Path)
	if err != nil {
		return nil, err
	}
	defer in.Close()

	r, err := p.Inflate(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}

	out, err := os.CreateTemp("", "promptfed-images-")
	if err != nil {
		return nil, data.MachineError{Err: fmt.Errorf("%s: no place to unpack its images: %w: set TMPDIR", p.Path, err)}
	}
	defer os.Remove(out.Name()) // the open file keeps its content if the system allows it

	size := int64(p.Count) * int64(p.Size())
	n, err := io.Copy(out, io.LimitReader(r, size))
	var machine *fs.PathError
	switch {
	case errors.As(err, &machine):
		err = fmt.Errorf("cannot unpack its images into %s (TMPDIR): %w", os.TempDir(), err)
	case err != nil || n < size:
		err = fmt.Errorf("damaged after %d of %d bytes of its images: %w: fetch it again", n, size,
			cmp.Or(err, io.ErrUnexpectedEOF))
	}

	if err != nil {
		out.Close()
		return nil, fmt.Errorf("%s: %w", p.Path, err) // messages omit the outer text, which names the file
	}

	return out, nil
}

// Size returns the bytes of one image: one for each pixel and channel.
func (p *Pixels) Size() int { return p.Width * p.Height * p.Channels }

// CheckSides returns an error if the images have no pixels or more than a reader of digits expects.
func (p *Pixels) CheckSides() error {
	if p.Height < 1 || p.Width < 1 || p.Height > 1024 || p.Width > 1024 {
		return fmt.Errorf("images of %d x %d pixels: expected 1 to 1024 a side", p.Height, p.Width)
	}
	return nil
}

// Image reads image i.
func (p *Pixels) Image(i int) (image.Image, error) {
	raw, at := make([]byte, p.Size()), int64(0)
	var src io.ReaderAt
	switch {
	case p.Raw != nil:
		src = bytes.NewReader(p.Raw)
	case p.Inflate != nil:
		p.once.Do(func() { p.plain, p.err = p.unpack() })
		if p.err != nil {
			return nil, p.err
		}
		src = p.plain
	default:
		f, err := os.Open(p.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		src, at = f, p.At
	}

	if _, err := src.ReadAt(raw, at+int64(i)*(int64(len(raw))+p.Gap)); err != nil {
		return nil, fmt.Errorf("%s: image %d: %w", p.Path, i, err)
	}

	return p.decode(raw), nil
}

// decode converts the bytes of an image to rows of pixels.
func (p *Pixels) decode(raw []byte) image.Image {
	box, right, down, plane := image.Rect(0, 0, p.Width, p.Height), 1, p.Width, p.Width*p.Height
	switch p.Order {
	case PlanesByColumn:
		right, down = p.Height, 1
	case PixelByPixel:
		right, down, plane = p.Channels, p.Width*p.Channels, 1
	}

	grey, colour := image.NewGray(box), image.NewRGBA(box)
	for i := range p.Width * p.Height {
		at := i%p.Width*right + i/p.Width*down
		if p.Channels == 1 {
			grey.Pix[i] = raw[at]
		} else {
			copy(colour.Pix[4*i:], []byte{raw[at], raw[at+plane], raw[at+2*plane], 255})
		}
	}

	if p.Channels == 1 {
		return grey
	}
	return colour
}

// SetArray uses an array of a pickle as the images.
func (p *Pixels) SetArray(array *pickle.Array) error {
	if array.Dtype.Letter != 'u' || array.Dtype.Size != 1 || array.Fortran {
		return fmt.Errorf("images of type %c%d: expected uint8 in C order", array.Dtype.Letter, array.Dtype.Size)
	}

	if array.Len() != p.Count*p.Size() {
		return fmt.Errorf("pixels of shape %v: expected %d images of %d bytes", array.Shape, p.Count, p.Size())
	}

	switch {
	case array.File == nil:
		p.Raw = array.Raw
	case array.File.Text:
		p.Inflate = func(f *os.File) (io.Reader, error) { return array.File.Open(f), nil }
	default:
		p.At = array.File.At
	}

	return nil
}
