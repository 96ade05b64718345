package exchange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/tensor"
)

// ActiveOrder is one order that a client is at work on. Its methods but start's goroutine belong to the client's loop.
type ActiveOrder struct {
	protocol.Order
	Body     []byte
	cancel   context.CancelFunc
	done     chan error
	finished bool

	mu  sync.Mutex
	try string // newest
}

// PreparedReply is a reply before it is sent.
type PreparedReply struct {
	protocol.Reply
	body []byte
}

// newest is the attempt that a reply answers.
func (j *ActiveOrder) newest() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.try
}

func (j *ActiveOrder) start(ctx context.Context, a *Client) {
	ctx, j.cancel = context.WithCancel(ctx)
	j.done = make(chan error, 1)
	a.activity.Store(fmt.Sprintf("round %d, %s", j.Round+1, j.Kind))
	go func(done chan<- error) { done <- a.do(ctx, j) }(j.done)
}

func (j *ActiveOrder) over() <-chan error {
	if j == nil {
		return nil
	}
	return j.done
}

// retry notes that the order came once more.
func (j *ActiveOrder) retry(again *ActiveOrder) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.try = again.try
}

// stop gives up.
func (j *ActiveOrder) stop() {
	if j == nil || j.finished {
		return
	}
	j.finished = true
	j.cancel()
	<-j.done
}

// close frees what a finished job holds.
func (j *ActiveOrder) close() {
	j.finished = true
	j.cancel()
}

// do does an order and sends the reply.
func (a *Client) do(ctx context.Context, j *ActiveOrder) error {
	defer a.activity.Store(Idle)
	ans, err := a.role.Execute(ctx, a, j)
	if err != nil || ans == nil {
		return err
	}
	if j.Kind == protocol.EndKind && ans.Error == "" { // this client has all; the server may be gone by now
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lastWord)
		defer cancel()
	}
	return a.deliver(ctx, j, *ans)
}

// lastWord is how long a client tries to tell the server that it has what it needs.
const lastWord = 30 * time.Second

// PrepareReply is what an order gave, with tensors, or why it failed.
func PrepareReply(j *ActiveOrder, out message.Reply, tensors tensor.Map, failed error) (*PreparedReply, error) {
	ans := &PreparedReply{Reply: protocol.Reply{Run: j.Order.Run, ID: j.ID, Client: j.Client}}
	if failed != nil {
		ans.Error, tensors = protocol.Printable(failed.Error()), nil
	} else {
		ans.N, ans.Loss, ans.Steps = out.Upload.N, out.Stats.Loss, out.Stats.Steps
		if message.Kind(j.Kind).Tests() {
			ans.Scores = &out.Scores
		}
	}
	var err error
	ans.body, err = message.EncodeTensors(tensors)
	ans.SetBody(ans.body)
	return ans, err
}

// Tensors is the tensors of an order; open gives the file into which they come in pieces. An order that announces more
// than the member takes is refused before the first piece.
func (a *Client) Tensors(ctx context.Context, j *ActiveOrder, open func(sum string) (*os.File, error)) (body []byte,
	err error) {
	if err = checkLarge(j.Size, a.Largest); err == nil && j.Object == "" {
		return j.Body, nil
	}
	var f *os.File
	if err == nil {
		f, err = open(j.Sum)
	}
	if err == nil {
		defer f.Close()
		body, err = a.fetch(ctx, f, j.Order.Content)
	}
	if err != nil {
		return nil, fmt.Errorf("the instruction's tensors: %w", err)
	}
	return body, nil
}

// deliver sends a reply until the server says that it has it. A reply is the same however often it comes, and counts
// once.
func (a *Client) deliver(ctx context.Context, j *ActiveOrder, ans PreparedReply) error {
	for patience := 2 * time.Second; ctx.Err() == nil; {
		ans.Try = j.newest()
		body := ans.body
		if len(body) > a.Limit {
			ans.Detach()
			body = nil
		}
		message, err := protocol.Pack(a.signer, protocol.ReplyMessage, ans.Reply, body)
		if err != nil {
			return err
		}
		if a.nc.IsClosed() {
			return closed(a.nc)
		}
		text, err := a.request(ctx, patience+time.Duration(len(message))*pushByte, subjects.ReplyVerb, message)
		var r protocol.Receipt
		if err == nil {
			if _, err = a.open(protocol.ReceiptMessage, text, &r); err == nil && r.State != protocol.ReceiptRepeat &&
				(r.ID != ans.ID || r.Try != ans.Try) {
				err = errors.New("the receipt belongs to another reply")
			}
		}
		switch {
		case err == nil && r.State == protocol.ReceiptTaken:
			return nil
		case err == nil && r.State == protocol.ReceiptPending:
			if err = a.upload(ctx, ans, r.Have); err == nil {
				continue
			}
		case errors.Is(err, context.DeadlineExceeded):
			patience = min(2*patience, time.Minute)
		}
		if err != nil {
			a.log.Debug("the reply did not arrive", "error", err)
		}
		Sleep(ctx, 250*time.Millisecond)
	}
	return nil // another order came, or the run is over
}
