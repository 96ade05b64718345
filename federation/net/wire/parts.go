package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Parameters of a connection, on both sides. A side that hears nothing sends a ping after PingPause, and closes the
// connection if there is no answer within PingTime. As many bytes as Window may be on the way before the answer. The
// windows are small: a slow link carries them within the time of a ping.
const (
	Window           = 256 << 10 // of a call
	ConnectionWindow = 1 << 20
	PingPause        = 15 * time.Second
	PingTime         = 30 * time.Second
)

// PartSize is the largest size of a part of tensors that are too large for one message, in bytes.
const PartSize = 64 << 10

// DefaultLargest is the default of the largest size of all tensors to or from a client, in bytes.
const DefaultLargest = 64 << 20

// ErrDamaged reports tensors that differ from their checksum.
var ErrDamaged = errors.New("the tensors are damaged")

// SendParts sends tensors in parts until ctx ends.
func SendParts(ctx context.Context, body []byte, send func(*Part) error) error {
	for data := range slices.Chunk(body, PartSize) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := send(&Part{Data: data}); err != nil {
			return err
		}
	}

	return nil
}

// Next returns the next part of a stream; io.EOF after the last one.
func Next(stream interface {
	Receive() bool
	Msg() *Part
	Err() error
}) (*Part, error) {
	if !stream.Receive() {
		return nil, cmp.Or(stream.Err(), io.EOF)
	}
	return stream.Msg(), nil
}

// ReceiveParts writes the tensors that follow a header to a file or a buffer. It refuses a byte more than announced
// before it writes it, and other bytes than announced at the end, with ErrDamaged. Other errors are those of next,
// which returns io.EOF after the last part, and of the writer.
func (c *Content) ReceiveParts(into io.Writer, next func() (*Part, error)) error {
	sum, left := sha256.New(), c.Size
	for left > 0 {
		part, err := next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}

		if err != nil {
			return err
		}

		n := uint64(len(part.Data))
		if n == 0 || n > min(left, PartSize) {
			return fmt.Errorf("%w: a part of %d bytes, and %d of %d are missing", ErrDamaged, n, left, c.Size)
		}

		if _, err := into.Write(part.Data); err != nil {
			return err
		}

		sum.Write(part.Data)
		left -= n
	}

	if hex.EncodeToString(sum.Sum(nil)) != c.Sum {
		return fmt.Errorf("%w: %d bytes with another checksum", ErrDamaged, c.Size)
	}

	return nil
}
