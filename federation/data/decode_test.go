package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// made returns images whose width is their number; those in bad cannot be read.
func made(n int, bad ...int) []Example {
	out := make([]Example, n)
	for i := range out {
		out[i] = Example{ID: fmt.Sprint("made", i), Load: func() (image.Image, error) {
			if slices.Contains(bad, i) {
				return nil, errors.New("broken")
			}
			return image.NewGray(image.Rect(0, 0, i, 1)), nil
		}}
	}
	return out
}

func width(i int, img image.Image) (int, error) {
	busytest.Delay(time.Duration(i*7919%5) * 100 * time.Microsecond) // finish out of order
	return img.Bounds().Dx(), nil
}

func TestDecodeKeepsOrder(t *testing.T) {
	for _, workers := range []int{0, 1, 3, 16} {
		var got []int
		err := Decode(context.Background(), made(60, 4, 59), workers, Skip, nil, width, func(i, w int,
			bad *BadImage) error {
			if (bad != nil) != (i == 4 || i == 59) || bad == nil && w != i {
				return fmt.Errorf("image %d: %d %v", i, w, bad)
			}
			got = append(got, i)
			return nil
		})
		if err != nil || !slices.Equal(got, tensor.Indices(60)) {
			t.Errorf("%d workers: %v %v", workers, got, err)
		}
	}
}

// TestDecodeStopsAtTheFirst: with any number of workers, the error is that of the first bad image in order, and only
// the images before it were emitted.
func TestDecodeStopsAtTheFirst(t *testing.T) {
	for _, workers := range []int{1, 8} {
		for range 10 {
			n := 0
			err := Decode(context.Background(), made(40, 30, 11, 13), workers, Refuse, nil, width, func(int, int,
				*BadImage) error {
				n++
				return nil
			})
			var bad *BadImage
			if !errors.As(err, &bad) || bad.Name != "made11" || n != 11 {
				t.Fatalf("%d workers: %v after %d", workers, err, n)
			}
		}
	}
}

func TestDecodeStops(t *testing.T) {
	stop := errors.New("stop")
	var started atomic.Int32
	slow := func(i int, _ image.Image) (int, error) { started.Add(1); return i, nil }
	err := Decode(context.Background(), made(1000), 2, Refuse, nil, slow, func(i, _ int, _ *BadImage) error {
		if i == 5 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || started.Load() > 100 {
		t.Errorf("%v after %d images", err, started.Load())
	}
	err = Decode(context.Background(), made(3), 2, Skip, nil, func(i int, _ image.Image) (int, error) {
		return 0, errors.New("too small")
	}, func(int, int, *BadImage) error { return nil })
	goldentest.WantError(t, err, "made0", "too small")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Decode(ctx, made(1000), 2, Refuse, nil, width, func(int, int,
		*BadImage) error {
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMissingFileIsABadImage(t *testing.T) {
	e := []Example{{ID: "x.png", Path: "nowhere/x.png"}}
	err := Decode(context.Background(), e, 1, Refuse, func(io.Reader) (image.Image, error) { return nil, nil }, width,
		func(int, int, *BadImage) error { return nil })
	goldentest.WantError(t, err, "nowhere/x.png", "no such file", "data.corrupt: skip")
}
