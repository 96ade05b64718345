package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A function runs once a second, in virtual time, until it asks for no other attempt or the context ends.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := errors.New("last")
		for most, want := range map[int]error{3: last, 4: context.DeadlineExceeded} {
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // attempts at 0, 1 and 2 seconds
			defer cancel()
			attempts := 0
			err := Retry(ctx, time.Second, func() (bool, error) {
				attempts++
				return attempts < most, last
			})
			if err != want || attempts != 3 {
				t.Errorf("of %d attempts %d ran: %v; want %v", most, attempts, err, want)
			}
		}
	})
}
