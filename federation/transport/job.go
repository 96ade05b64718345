package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// job is one order that a client is at work on. Its methods but start's goroutine belong to the agent's loop.
type job struct {
	order
	body     []byte
	cancel   context.CancelFunc
	done     chan error
	finished bool

	mu       sync.Mutex
	messages []jetstream.Msg // that gave the order
	try      string          // of the newest
}

// given are the messages that gave the order so far, and the attempt of the newest.
func (j *job) given() ([]jetstream.Msg, string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.messages), j.try
}

// answer is a reply before it is sent.
type answer struct {
	reply
	body []byte
}

// receive reads an order; one that is damaged or not for this client is put away. An error tells of another run.
func (a *Agent) receive(m jetstream.Msg) (*job, error) {
	j := &job{messages: []jetstream.Msg{m}}
	var err error
	if j.body, err = unpack(m.Data(), &j.order); err == nil {
		err = j.order.check()
	}
	switch {
	case err != nil:
	case j.Run != a.Invitation.Run:
		m.Nak()
		return nil, fmt.Errorf("an order is of run %.12s", j.Run)
	case j.Client != a.client || j.Of != a.Clients:
		err = fmt.Errorf("it is for client %d of %d", j.Client, j.Of)
	default:
		j.try = j.Try
		return j, nil
	}
	a.log.Warn("an order is put away", "reason", plain(err.Error()))
	m.Term()
	return nil, nil
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
	j.messages, j.try = append(j.messages, again.messages...), again.try
}

// busy tells JetStream that the order is being worked on.
func (j *job) busy() {
	if j != nil && !j.finished {
		list, _ := j.given()
		for _, m := range list {
			m.InProgress()
		}
	}
}

// stop gives up; JetStream delivers the order again if it is still to be done.
func (j *job) stop() {
	if j == nil || j.finished {
		return
	}
	j.finished = true
	j.cancel()
	<-j.done
	list, _ := j.given()
	for _, m := range list {
		m.Nak()
	}
}

// close frees what a finished job holds.
func (j *job) close() {
	j.finished = true
	j.cancel()
}

// do does an order and sends the reply.
func (a *Agent) do(ctx context.Context, j *job) error {
	defer a.doing.Store("waits")
	ans := a.last
	if ans == nil || ans.ID != j.ID {
		var err error
		if ans, err = a.work(ctx, j); err != nil {
			return err
		}
		a.last = ans
	}
	_, try := j.given()
	err := a.reply(ctx, try, *ans)
	list, _ := j.given()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		a.log.Warn("the reply could not be stored; the order will come again", "error", err)
		for _, m := range list {
			m.NakWithDelay(time.Second)
		}
		return nil
	}
	for _, m := range list {
		if err := m.Ack(); err != nil {
			a.log.Debug("an order could not be acknowledged; it will come again", "error", err)
		}
	}
	return nil
}

// work computes the reply to an order. An error ends the agent; what goes wrong in the client's part is told to the server.
func (a *Agent) work(ctx context.Context, j *job) (*answer, error) {
	s, err := a.vault.get(j.Accepted)
	if err == nil {
		err = a.vault.keep(j.Round, j.Kind == string(engine.Train), j.Accepted, j.Safe, j.ID)
	}
	if err != nil {
		return nil, err
	}
	ans := &answer{reply: reply{Run: j.order.Run, ID: j.ID, Client: a.client}}
	out, err := a.compute(ctx, j, s)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		a.log.Error("the order could not be done", "round", j.Round, "kind", j.Kind, "error", err)
		ans.Error = plain(err.Error())
	} else {
		ans.N, ans.Loss, ans.Steps = out.Upload.N, out.Stats.Loss, out.Stats.Steps
		if engine.Kind(j.Kind).Tests() {
			ans.Scores = &out.Scores
		}
	}
	ans.body, err = wire.Encode(out.Tensors())
	ans.of(ans.body)
	return ans, err
}

// compute is the client's part.
func (a *Agent) compute(ctx context.Context, j *job, s engine.State) (engine.Reply, error) {
	m, err := a.content(ctx, j)
	if err != nil {
		return engine.Reply{}, err
	}
	o, err := j.order.asked().With(m)
	if err != nil {
		return engine.Reply{}, err
	}
	if j.Kind == endKind {
		if err := a.part.Finish(o, s); err != nil {
			return engine.Reply{}, err
		}
		return engine.Reply{}, a.vault.write(owner{a.Invitation.Run, a.client, true})
	}
	r, next, err := a.part.Answer(ctx, o, s)
	if err == nil && next != nil {
		err = a.vault.put(j.Round, j.ID, *next)
	}
	return r, err
}

// content is the tensors of an order.
func (a *Agent) content(ctx context.Context, j *job) (tensor.Map, error) {
	body := j.body
	if j.Object != "" {
		store, err := a.js.ObjectStore(ctx, a.bucket(a.client))
		if err == nil {
			body, err = load(ctx, store, j.order.content)
		}
		if err != nil {
			return nil, fmt.Errorf("the order's tensors: %w", err)
		}
	}
	return j.order.content.tensors(body)
}

// reply stores a reply in the server's queue. The same reply to the same message is stored once.
func (a *Agent) reply(ctx context.Context, try string, ans answer) error {
	ans.Try = try
	body := ans.body
	if len(body) > a.limit {
		store, err := a.js.ObjectStore(ctx, a.bucket(a.client))
		if err != nil {
			return err
		}
		ans.Object = NewID()
		if _, err := store.PutBytes(ctx, ans.Object, body); err != nil {
			return err
		}
		body = nil
	}
	message, err := pack(ans.reply, body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// What is on its way when a connection is lost, or its acknowledgement, is gone for good: the reply is sent again, which its
	// identity makes harmless.
	for patience := 2 * time.Second; ; {
		one, cancel := context.WithTimeout(ctx, patience)
		_, err := a.js.Publish(one, a.subject(replySubject, a.client), message, jetstream.WithMsgID(ans.ID+ans.Try))
		if one.Err() != nil {
			patience *= 2
		}
		cancel()
		if err == nil {
			return nil
		}
		if sleep(ctx, 250*time.Millisecond) != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
}
