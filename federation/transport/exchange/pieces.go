package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// fetch receives the tensors of an instruction in pieces. They are written to a file, whose length is the progress and
// which is emptied when they are complete.
func (a *Client) fetch(ctx context.Context, f *os.File, c protocol.Content) ([]byte, error) {
	for range 3 {
		if err := a.receiveInto(ctx, f, c); err != nil {
			return nil, err
		}
		b := make([]byte, c.Size)
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			return nil, err
		}
		if protocol.Checksum(b) == c.Sum {
			os.Remove(f.Name())
			return b, nil
		}
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
	}
	return nil, protocol.ErrDamaged
}

// receiveInto requests the missing pieces, several at a time, and writes them in order.
func (a *Client) receiveInto(ctx context.Context, f *os.File, c protocol.Content) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	eg, ctx := errgroup.WithContext(ctx)
	coming := make(chan chan []byte, maxInFlight-1) // pieces in flight, in order
	eg.Go(func() error {
		defer close(coming)
		for n := int(min(info.Size(), int64(c.Size))) / pieceSize; n < pieces(c.Size); n++ {
			one := make(chan []byte, 1)
			select {
			case coming <- one:
			case <-ctx.Done():
				return ctx.Err()
			}
			eg.Go(func() error {
				b, err := a.piece(ctx, c, n)
				one <- b
				return err
			})
		}
		return nil
	})
	eg.Go(func() error {
		at := int(min(info.Size(), int64(c.Size))) / pieceSize * pieceSize
		for one := range coming {
			select {
			case b := <-one:
				if b == nil {
					return nil // the error is that of the piece
				}
				if _, err := f.WriteAt(b, int64(at)); err != nil {
					return err
				}
				at += len(b)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return eg.Wait()
}

// piece requests one piece until it arrives.
func (a *Client) piece(ctx context.Context, c protocol.Content, n int) ([]byte, error) {
	from, to := bounds(c.Size, n)
	question := encoded(protocol.PieceRequest{Sum: c.Sum, Piece: n})
	wrong := 0
	for patience := firstPatience; wrong < maxDamaged; patience = min(2*patience, time.Minute) {
		b, err := a.tryRequest(ctx, patience, subjects.PieceVerb, question)
		if err != nil {
			return nil, err
		}
		if len(b) == 1 && b[0] == pieceGone {
			return nil, ErrGone
		}
		if len(b) == 5+to-from && b[0] == pieceHere && binary.LittleEndian.Uint32(b[1:]) == crc(b[5:]) {
			return b[5:], nil
		}
		if b != nil {
			wrong++
		}
	}
	return nil, fmt.Errorf("%w: piece %d arrived damaged %d times", protocol.ErrDamaged, n, wrong)
}

// firstPatience is how long a piece may take: the pieces ahead of it must pass a slow link.
const firstPatience = 10 * time.Second

// tryRequest makes a request; without an answer it returns nil.
func (a *Client) tryRequest(ctx context.Context, patience time.Duration, verb string, body []byte) ([]byte, error) {
	b, err := a.request(ctx, patience, verb, body)
	if err == nil {
		return b, nil
	}
	if a.nc.IsClosed() {
		return nil, closed(a.nc)
	}
	if !errors.Is(err, context.DeadlineExceeded) { // no connection at the moment
		Sleep(ctx, 250*time.Millisecond)
	}
	return nil, ctx.Err()
}

// upload sends the missing pieces of a reply; have has one bit for each piece that the server has.
func (a *Client) upload(ctx context.Context, ans PreparedReply, have []byte) error {
	if len(have) != (pieces(len(ans.body))+7)/8 {
		return errors.New("the server states other pieces than there are")
	}
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(maxInFlight)
	for n := range pieces(len(ans.body)) {
		if have[n/8]&(1<<(n%8)) != 0 {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		eg.Go(func() error {
			from, to := bounds(len(ans.body), n)
			message := binary.LittleEndian.AppendUint32([]byte(ans.ID), uint32(n))
			message = append(binary.LittleEndian.AppendUint32(message, crc(ans.body[from:to])), ans.body[from:to]...)
			for patience := firstPatience; ; patience = min(2*patience, time.Minute) {
				b, err := a.tryRequest(ctx, patience, subjects.PutVerb, message)
				if err != nil {
					return err
				}
				if len(b) == 1 && b[0] == pieceTaken {
					return nil
				}
				if len(b) == 1 && b[0] == pieceGone {
					return ErrGone
				}
			}
		})
	}
	return eg.Wait()
}
