package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// job is one order that an agent is at work on. Its methods but start's goroutine belong to the agent's loop.
type job struct {
	order
	body     []byte
	cancel   context.CancelFunc
	done     chan error
	finished bool

	mu  sync.Mutex
	try string // newest
}

// answer is a reply before it is sent.
type answer struct {
	reply
	body []byte
}

// newest is the attempt that a reply answers.
func (j *job) newest() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.try
}

func (j *job) start(ctx context.Context, a *Agent) {
	ctx, j.cancel = context.WithCancel(ctx)
	j.done = make(chan error, 1)
	a.doing.Store(fmt.Sprintf("round %d, %s", j.Round+1, j.Kind))
	go func(done chan<- error) { done <- a.do(ctx, j) }(j.done)
}

func (j *job) over() <-chan error {
	if j == nil {
		return nil
	}
	return j.done
}

func (j *job) ended() bool { return j.finished }

// take notes that the order came once more.
func (j *job) take(again *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.try = again.try
}

// stop gives up.
func (j *job) stop() {
	if j == nil || j.finished {
		return
	}
	j.finished = true
	j.cancel()
	<-j.done
}

// close frees what a finished job holds.
func (j *job) close() {
	j.finished = true
	j.cancel()
}

// do does an order and sends the reply.
func (a *Agent) do(ctx context.Context, j *job) error {
	defer a.doing.Store(idle)
	ans, err := a.role.work(ctx, a, j)
	if err != nil || ans == nil {
		return err
	}
	if j.Kind == endKind && ans.Error == "" { // this client has all; the server may be gone by now
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lastWord)
		defer cancel()
	}
	return a.deliver(ctx, j, *ans)
}

// lastWord is how long a client tries to tell the server that it has what it needs.
const lastWord = 30 * time.Second

// answered is what an order gave, with tensors, or why it failed.
func answered(j *job, out message.Reply, tensors tensor.Map, failed error) (*answer, error) {
	ans := &answer{reply: reply{Run: j.order.Run, ID: j.ID, Client: j.Client}}
	if failed != nil {
		ans.Error, tensors = plain(failed.Error()), nil
	} else {
		ans.N, ans.Loss, ans.Steps = out.Upload.N, out.Stats.Loss, out.Stats.Steps
		if message.Kind(j.Kind).Tests() {
			ans.Scores = &out.Scores
		}
	}
	var err error
	ans.body, err = wire.Encode(tensors)
	ans.of(ans.body)
	return ans, err
}

// content is the tensors of an order; open gives the file into which they come in pieces.
func (a *Agent) content(ctx context.Context, j *job, open func(sum string) (*os.File, error)) (body []byte, err error) {
	if j.Object == "" {
		return j.body, nil
	}
	f, err := open(j.Sum)
	if err == nil {
		defer f.Close()
		body, err = a.fetch(ctx, f, j.order.content)
	}
	if err != nil {
		return nil, fmt.Errorf("the order's tensors: %w", err)
	}
	return body, nil
}

// deliver sends a reply until the server says that it has it. A reply is the same however often it comes, and counts
// once.
func (a *Agent) deliver(ctx context.Context, j *job, ans answer) error {
	for patience := 2 * time.Second; ctx.Err() == nil; {
		ans.Try = j.newest()
		body := ans.body
		if len(body) > a.limit {
			ans.away()
			body = nil
		}
		message, err := pack(a.sign, replyMessage, ans.reply, body)
		if err != nil {
			return err
		}
		if a.nc.IsClosed() {
			return closed(a.nc)
		}
		text, err := a.request(ctx, patience+time.Duration(len(message))*pushByte, replyVerb, message)
		var r receipt
		if err == nil {
			if _, err = a.open(receiptMessage, text, &r); err == nil && r.State != repeat &&
				(r.ID != ans.ID || r.Try != ans.Try) {
				err = errors.New("the receipt is of another reply")
			}
		}
		switch {
		case err == nil && r.State == taken:
			return nil
		case err == nil && r.State == pending:
			if err = a.upload(ctx, ans, r.Have); err == nil {
				continue
			}
		case errors.Is(err, context.DeadlineExceeded):
			patience = min(2*patience, time.Minute)
		}
		if err != nil {
			a.log.Debug("the reply did not arrive", "error", err)
		}
		sleep(ctx, 250*time.Millisecond)
	}
	return nil // another order came, or the run is over
}
