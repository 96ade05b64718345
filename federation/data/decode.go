package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// The values of data.corrupt: what happens to an image that cannot be read.
const (
	Refuse = "refuse" // stop with an error that names its path
	Skip   = "skip"   // leave it out and count it
)

// BadImage is the error of an example that cannot be read.
type BadImage struct {
	Name string // its path, or its ID
	Err  error
}

func (e *BadImage) Error() string {
	return fmt.Sprintf("cannot read image %s: %v: repair or remove it, or set data.corrupt: skip", e.Name, e.Err)
}

func (e *BadImage) Unwrap() error { return e.Err }

// MachineError marks an error of the machine, such as a folder for temporary files that does not exist.
type MachineError struct{ Err error }

func (e MachineError) Error() string { return e.Err.Error() }
func (e MachineError) Unwrap() error { return e.Err }

// OfMachine reports whether an error is the machine's, so that it says nothing about the image or the file: it is
// marked as such, a disk is full, or too many files are open.
func OfMachine(err error) bool {
	return errors.As(err, new(MachineError)) || slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE,
		syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS},
		func(number error) bool { return errors.Is(err, number) })
}

// unreadable returns the error of an example that cannot be read: a *BadImage, or another one if the machine failed.
func (e Example) unreadable(err error) error {
	if OfMachine(err) {
		return fmt.Errorf("cannot read image %s: %w", e.Name(), err)
	}
	return &BadImage{e.Name(), trimmed(err)}
}

// Decode reads examples on several goroutines and passes prepare's result for each image to emit, one at a time and in
// the order of examples, whatever the number of workers. At most 2*workers results wait. prepare runs concurrently. If
// corrupt is Refuse, an image that cannot be read is a *BadImage error; if corrupt is Skip, emit gets the error as bad,
// with no value. A failure of the machine is always an error. The first error in the order of examples, or the end of
// ctx, stops everything.
func Decode[T any](ctx context.Context, examples []Example, workers int, corrupt string, decode Decoder,
	prepare func(i int, img image.Image) (T, error), emit func(i int, v T, bad *BadImage) error) error {
	type result struct {
		value T
		bad   *BadImage
	}

	one := func(_ context.Context, i int) (got result, err error) {
		img, err := examples[i].Image(decode)
		if err != nil {
			err = examples[i].unreadable(err)
			if errors.As(err, &got.bad) && corrupt == Skip {
				err = nil
			}
			return got, err
		}
		if got.value, err = prepare(i, img); err != nil {
			err = fmt.Errorf("%s: %w", examples[i].Name(), err)
		}
		return got, err
	}

	return ParallelInOrder(ctx, len(examples), workers, one, func(i int, r result) error {
		return emit(i, r.value, r.bad)
	})
}

// ParallelInOrder runs n pieces of work on several goroutines and passes their results to emit, one at a time and in
// order, whatever the number of workers. At most 2*workers results wait. The first error in that order, or the end of
// ctx, stops everything.
func ParallelInOrder[T any](ctx context.Context, n, workers int, do func(ctx context.Context, i int) (T, error),
	emit func(i int, v T) error) error {
	type result struct {
		value T
		err   error
	}
	workers = max(1, workers)
	group, ctx := errgroup.WithContext(ctx)
	results := make(chan chan result, 2*workers) // in order
	group.Go(func() error {
		defer close(results)
		var work errgroup.Group
		work.SetLimit(workers)
		defer work.Wait()
		for i := range n {
			out := make(chan result, 1)
			select {
			case results <- out:
				work.Go(func() error {
					v, err := do(ctx, i)
					out <- result{v, err}
					return nil
				})
			case <-ctx.Done():
				return ctx.Err()
			}
		}

		return nil
	})

	group.Go(func() error {
		i := 0
		for out := range results {
			r := <-out
			if err := cmp.Or(r.err, ctx.Err()); err != nil {
				return err
			}
			if err := emit(i, r.value); err != nil {
				return err
			}
			i++
		}
		return nil
	})

	return group.Wait()
}

// trimmed removes the path, which BadImage already contains.
func trimmed(err error) error {
	if u := errors.Unwrap(err); u != nil {
		return u
	}
	return err
}

// readEach reads all images of a list and calls got for each, in order, with nil or with why it cannot be read.
func readEach(ctx context.Context, list []Example, workers int, decode Decoder, got func(i int, bad *BadImage)) error {
	return Decode(ctx, list, workers, Skip, decode,
		func(int, image.Image) (struct{}, error) { return struct{}{}, nil },
		func(i int, _ struct{}, bad *BadImage) error {
			got(i, bad)
			return nil
		})
}

// DropUnreadable reads every image once, removes images that cannot be read from the set and adds them to s.Skipped, so
// that no later index refers to them. A class without remaining training images is an error. progress, which may be
// nil, is called with the number of images read so far, in order.
func (s *Set) DropUnreadable(ctx context.Context, workers int, decode Decoder, progress func(done, total int)) error {
	total, done := 0, 0
	for _, sp := range s.Splits() {
		total += len(*sp.Examples)
	}

	for _, sp := range s.Splits() {
		before := *sp.Examples
		good := make([]Example, 0, len(before))
		if err := readEach(ctx, before, workers, decode, func(i int, bad *BadImage) {
			if bad != nil {
				s.Skipped = append(s.Skipped, Skipped{bad.Name, bad.Err.Error()})
			} else {
				good = append(good, before[i])
			}
			if done++; progress != nil {
				progress(done, total)
			}
		}); err != nil {
			return err
		}

		if sp.Name == "train" || sp.Name == "pool" {
			if class, had := s.emptied(before, good); had > 0 {
				return fmt.Errorf("class %q: none of its %d %s images can be read: repair or remove the class", class,
					had, sp.Name)
			}
		}

		*sp.Examples = good
	}

	return nil
}
