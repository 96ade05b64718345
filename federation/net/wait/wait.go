package wait

import (
	"context"
	"time"
)

// For waits for a time, or returns the error of a context that ends before.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Retry calls a function, with pauses, until it does not ask for another attempt or the context ends.
func Retry(ctx context.Context, pause time.Duration, do func() (again bool, err error)) error {
	for {
		again, err := do()
		if !again {
			return err
		}
		if err := For(ctx, pause); err != nil {
			return err
		}
	}
}
