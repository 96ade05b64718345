package transport

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream whose files JetStream is still removing is made a moment later; any other error is told at once, and one
// that stays is told in the end.
func TestWhileRemoved(t *testing.T) {
	busy := fmt.Errorf("stream: %w", &jetstream.APIError{Code: 500, ErrorCode: storeFailed})
	other := &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeBadRequest}
	for _, c := range []struct {
		first []error
		want  error
		calls int
	}{{nil, nil, 1}, {[]error{busy, busy}, nil, 3}, {[]error{other}, other, 1}, {[]error{busy, other}, other, 2}} {
		calls := 0
		err := whileRemoved(context.Background(), func() error {
			if calls++; calls <= len(c.first) {
				return c.first[calls-1]
			}
			return nil
		})
		if calls != c.calls || !errors.Is(err, c.want) {
			t.Errorf("after %v: %d calls, %v; want %d, %v", c.first, calls, err, c.calls, c.want)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := whileRemoved(ctx, func() error { return busy }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
