package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A client for whose objects the NATS server has no room waits, and both sides say what to do.
func TestNoRoomForAClient(t *testing.T) {
	s := newSite(t, fedpha.toy(t))
	s.set.Largest = 1 << 38 // four times that is all that an embedded server promises
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	go s.serve(ctx, false)
	eventually(t, "serving", func() bool { return s.hub.Load() != nil })
	joined := make(chan error, 1)
	go func() { joined <- s.join(ctx, 0) }()
	eventually(t, "joining", func() bool { return s.hub.Load().Members()[0].Joined })
	if err := s.join(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second client: %v", err)
	}
	<-joined
	if n := strings.Count(s.log.String(), "a smaller --largest"); n < 2 {
		t.Errorf("it is said %d times what to do", n)
	}
}
