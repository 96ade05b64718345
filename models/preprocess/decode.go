package preprocess

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // formats register themselves
	"image/jpeg"
	_ "image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"
)

const (
	// maxBytes and maxPixels limit the cost of one image file: 64 MiB on disk and 64 million pixels when decoded (the
	// largest cameras have 50). maxSide limits the weights of a resampling, 16 bytes for each pixel of a side.
	maxBytes  = 64 << 20
	maxPixels = 64 << 20
	maxSide   = 1 << 20
)

// Decode reads a JPEG, PNG, GIF (its first frame), WebP, BMP or TIFF image, with its colours converted for Levels.
// It checks the size before it decodes pixels.
func Decode(r io.Reader) (image.Image, error) { return DecodeIf(r, func(int) error { return nil }) }

// DecodeIf is Decode with a condition: allow gets the number of pixels before any pixel is decoded, and DecodeIf
// returns its error.
func DecodeIf(r io.Reader, allow func(pixels int) error) (img image.Image, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}

	if len(data) > maxBytes {
		return nil, fmt.Errorf("image: file of more than %d MiB: scale it down", maxBytes>>20)
	}

	// The decoders of golang.org/x/image sometimes panic on hostile data; a damaged file must not end a run.
	defer func() {
		if p := recover(); p != nil {
			img, err = nil, fmt.Errorf("image: damaged: %v", p)
		}
	}()

	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	if errors.Is(err, image.ErrFormat) {
		return nil, errors.New("image: not a JPEG, PNG, GIF, WebP, BMP or TIFF file")
	}

	if err != nil {
		return nil, refusal(format+" header", err)
	}

	if format == "tiff" && faxInverted(data) {
		return nil, errors.New("image: a TIFF of CCITT compression in which 1 is not black: convert it to PNG, or " +
			"save it without compression")
	}

	if err := fits(config.Width, config.Height); err != nil {
		return nil, err
	}

	if err := allow(config.Width * config.Height); err != nil {
		return nil, err
	}

	decoded, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, refusal(format, err)
	}

	size := decoded.Bounds()
	if err := fits(size.Dx(), size.Dy()); err != nil {
		return nil, err
	}

	if format == "webp" {
		decoded = studioRange(decoded)
	}

	return rasterOf(decoded), nil
}

// refusal returns the error of a file that a decoder refuses, which may be whole, but in a form that the decoder lacks.
func refusal(what string, err error) error {
	if errors.Is(err, bmp.ErrUnsupported) || errors.As(err, new(jpeg.UnsupportedError)) ||
		errors.As(err, new(tiff.UnsupportedError)) {
		return fmt.Errorf("image: %w: convert it to PNG", err)
	}
	return fmt.Errorf("image: damaged %s: %w", what, err)
}

// faxInverted reports whether a TIFF file has a compression of fax machines (CCITT groups 3 and 4) and a photometric
// interpretation other than WhiteIsZero. golang.org/x/image/tiff reads its pixels inverted.
func faxInverted(file []byte) bool {
	var order binary.ByteOrder = binary.LittleEndian
	if file[0] == 'M' {
		order = binary.BigEndian
	}

	values := map[uint16]uint32{}
	directory := file[order.Uint32(file[4:]):]
	for i := range int(order.Uint16(directory)) {
		entry := directory[2+12*i:]
		tag, kind, value := order.Uint16(entry), order.Uint16(entry[2:]), entry[8:]
		if kind == 4 { // a number of four bytes
			values[tag] = order.Uint32(value)
		} else {
			values[tag] = uint32(order.Uint16(value))
		}
	}

	compression, photometric := values[259], values[262]
	return (compression == 3 || compression == 4) && photometric != 0
}

func fits(w, h int) error {
	if w <= 0 || h <= 0 {
		return fmt.Errorf("image: %d x %d: no pixels", w, h)
	}
	if w > maxPixels/h {
		return fmt.Errorf("image: %d x %d pixels, the limit is %d in all: scale it down", w, h, maxPixels)
	}
	if max(w, h) > maxSide {
		return fmt.Errorf("image: %d x %d pixels, the limit of a side is %d: scale it down", w, h, maxSide)
	}
	return nil
}
