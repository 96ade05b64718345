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

// ActiveInstruction is the instruction that a client is executing. Only the client's loop calls its methods, except for
// the goroutine of start.
type ActiveInstruction struct {
	protocol.Instruction
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

// newest returns the attempt that the reply answers.
func (j *ActiveInstruction) newest() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.try
}

func (j *ActiveInstruction) start(ctx context.Context, a *Client) {
	ctx, j.cancel = context.WithCancel(ctx)
	j.done = make(chan error, 1)
	a.activity.Store(fmt.Sprintf("round %d, %s", j.Round+1, j.Kind))
	go func(done chan<- error) { done <- a.do(ctx, j) }(j.done)
}

func (j *ActiveInstruction) over() <-chan error {
	if j == nil {
		return nil
	}
	return j.done
}

// retry records another attempt of the instruction.
func (j *ActiveInstruction) retry(again *ActiveInstruction) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.try = again.try
}

// stop cancels the instruction.
func (j *ActiveInstruction) stop() {
	if j == nil || j.finished {
		return
	}
	j.finished = true
	j.cancel()
	<-j.done
}

// close frees the resources of a finished instruction.
func (j *ActiveInstruction) close() {
	j.finished = true
	j.cancel()
}

// do executes an instruction and sends the reply.
func (a *Client) do(ctx context.Context, j *ActiveInstruction) error {
	defer a.activity.Store(Idle)
	ans, err := a.role.Execute(ctx, a, j)
	if err != nil || ans == nil {
		return err
	}
	if j.Kind == protocol.EndKind && ans.Error == "" { // this client is done; the server may be gone
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lastWord)
		defer cancel()
	}
	return a.deliver(ctx, j, *ans)
}

// lastWord is how long a client tries to report that it has the final parameters.
const lastWord = 30 * time.Second

// PrepareReply returns the reply to an instruction: its result with tensors, or the reason of its failure.
func PrepareReply(j *ActiveInstruction, out message.Reply, tensors tensor.Map, failed error) (*PreparedReply, error) {
	ans := &PreparedReply{Reply: protocol.Reply{Run: j.Instruction.Run, ID: j.ID, Client: j.Client}}
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

// Tensors returns the tensors of an instruction; open opens the file for their pieces. An instruction with more bytes
// than the member accepts is refused before the first piece.
func (a *Client) Tensors(ctx context.Context, j *ActiveInstruction, open func(sum string) (*os.File, error)) (
	body []byte, err error) {
	if err = checkLarge(j.Size, a.Largest); err == nil && j.Object == "" {
		return j.Body, nil
	}
	var f *os.File
	if err == nil {
		f, err = open(j.Sum)
	}
	if err == nil {
		defer f.Close()
		body, err = a.fetch(ctx, f, j.Instruction.Content)
	}
	if err != nil {
		return nil, fmt.Errorf("the instruction's tensors: %w", err)
	}
	return body, nil
}

// deliver sends a reply until the server acknowledges it. Repeated replies are equal and count once.
func (a *Client) deliver(ctx context.Context, j *ActiveInstruction, ans PreparedReply) error {
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
	return nil // another instruction came, or the run is over
}
