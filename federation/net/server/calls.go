package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
)

// Invite returns the invitation of a client.
func (h service) Invite(ctx context.Context, r *wire.InvitationRequest) (*wire.Invitation, error) {
	_, _, err := h.caller(ctx, questionCost)
	if err != nil {
		return nil, err
	}

	out := &wire.Invitation{Version: wire.Version, Run: h.set.ID}
	if r.Version != wire.Version { // the client reports it
		return out, nil
	}

	out.Clients, out.Config, out.Classes = uint32(h.set.Clients), h.set.Config, h.members.roster().terms.Classes
	out.InsecureDp, out.InlineLimit = h.set.InsecureDP, uint32(h.set.Limit)
	return out, nil
}

// Join lets a process take part as its client.
func (h service) Join(ctx context.Context, m *wire.JoinCall) (*wire.JoinAnswer, error) {
	peer, client, err := h.caller(ctx, questionCost)
	if err != nil {
		return nil, err
	}

	s, texts, err := h.join(client, peer, m)
	if s != nil {
		defer func() { h.members.exit(client, s, ctx.Err() != nil) }()
	}

	if err := h.charge(ctx, client, texts/textPerCost); err != nil {
		return nil, err
	}

	switch b := h.mail.box(client); {
	case errors.As(err, new(ownError)):
		return nil, h.unable(err)
	case err == nil:
		return &wire.JoinAnswer{Accepted: b.accepted, Safe: b.safe}, nil
	case errors.As(err, new(laterError)):
		return &wire.JoinAnswer{Later: wire.Printable(err.Error())}, nil
	}

	return nil, denied("%s", wire.Printable(err.Error()))
}

// enter begins a call of a client's process. The context of the call ends with its connection, with the process and
// with the next call of the same kind; exit ends the call. io is called at most once, when the context ends, to end
// what the call reads or writes.
func (h *Server) enter(ctx context.Context, client int, instance string, what kind, io func(context.Context)) (
	_ context.Context, exit func(), err error) {
	call, cancel := context.WithCancelCause(ctx)
	session, err := h.members.enter(client, instance, what, cancel)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}

	process := context.AfterFunc(session.ctx, func() { cancel(context.Cause(session.ctx)) })
	end := afterEnd(call, func() { io(ctx) })
	return call, func() {
		process()
		end()
		h.members.exit(client, session, ctx.Err() != nil)
		cancel(nil)
	}, nil
}

// afterEnd calls a function when a context ends, unless stop is called before. The function does not run after stop.
func afterEnd(ctx context.Context, do func()) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		do()
		close(done)
	})

	return func() {
		if !cancel() {
			<-done
		}
	}
}

// sendTime is how long a client may take to read what it gets of an instruction that is over.
const sendTime = 5 * time.Second

// Next waits for an instruction to a client and sends it. A client that does not read it holds its tensors in memory at
// most for sendTime after the instruction is over.
func (h service) Next(ctx context.Context, ask *wire.Ask, stream *connect.ServerStream[wire.Part]) error {
	_, client, err := h.caller(ctx, callCost)
	if err != nil {
		return err
	}

	call, exit, err := h.enter(ctx, client, ask.Instance, asking, endWrites)
	if err != nil {
		return err
	}
	defer exit()

	request, err := h.mail.newer(call, client, ask.Seq)
	if err != nil {
		return err
	}

	sending, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	defer afterEnd(request.over, func() {
		cancel(connect.NewError(connect.CodeAborted, errors.New("the instruction is over")))
		endWrites(ctx)
	})()

	instruction := protobuf.CloneOf(request.Instruction)
	inParts := len(request.body) > h.set.Limit && ask.Has != request.Id
	if len(request.body) <= h.set.Limit {
		instruction.Content.Body = request.body
	} else if inParts {
		err = h.charge(sending, client, len(request.body)/wire.PartSize)
	}

	if err == nil {
		err = stream.Send(&wire.Part{Instruction: instruction})
	}

	size := int64(protobuf.Size(instruction))
	if err == nil && inParts {
		size += int64(len(request.body))
		err = wire.SendParts(sending, request.body, stream.Send)
	}

	if err == nil {
		h.counts.change(func(c *counts) {
			c.BytesDown += size
			c.clients[client].down += size
		})
	}

	return err
}

func endWrites(call context.Context) { deadlinesOf(call).SetWriteDeadline(time.Now().Add(sendTime)) }

func endReads(call context.Context) { deadlinesOf(call).SetReadDeadline(time.Now()) }

// deadlinesOf returns the deadlines of a call's response and request.
func deadlinesOf(call context.Context) *http.ResponseController {
	return call.Value(responseKey{}).(*http.ResponseController)
}

// Answer receives the reply to an instruction.
func (h service) Answer(ctx context.Context, stream *connect.ClientStream[wire.Part]) (*emptypb.Empty, error) {
	_, client, err := h.caller(ctx, callCost)
	if err != nil {
		return nil, err
	}

	next := func() (*wire.Part, error) {
		p, err := wire.Next(stream)
		if err == nil {
			err = h.charge(ctx, client, h.costOf(p))
		}
		return p, err
	}

	part, err := next()
	if err == nil && part.Reply == nil {
		h.counts.change(func(c *counts) {
			c.clients[client].refused++
			c.Dropped++
		})
		err = connect.NewError(connect.CodeInvalidArgument, errors.New("the first part must be a reply"))
	}

	if err != nil {
		return nil, err
	}

	call, exit, err := h.enter(ctx, client, part.Reply.Instance, answering, endReads)
	if err != nil {
		return nil, err
	}
	defer exit()

	if err := h.receive(call, client, part.Reply, next); err != nil {
		return nil, cmp.Or(context.Cause(call), err)
	}

	return &emptypb.Empty{}, nil
}

// Leave records that a client's user stopped it.
func (h service) Leave(ctx context.Context, m *wrapperspb.StringValue) (*emptypb.Empty, error) {
	_, client, err := h.caller(ctx, questionCost)
	if err != nil {
		return nil, err
	}

	left := false
	h.members.change(client, func(one *member) {
		if left = one.session != nil && one.session.instance == m.Value; left {
			one.session.end(errors.New("the client left"))
			one.session, one.left, one.seen = nil, true, time.Now()
		}
	})

	if left {
		h.set.Log.Info("leaves", "client", client)
	}

	h.changed()
	return &emptypb.Empty{}, nil
}

// Status returns the status for the status user.
func (h service) Status(ctx context.Context, _ *emptypb.Empty) (*wrapperspb.BytesValue, error) {
	if p := connectionOf(ctx).Peer(); p.Name != certs.StatusUser {
		return nil, denied("%.60q may not ask for the status", p.Name)
	}

	if err := h.watchers.budget.WaitN(ctx, statusCost); err != nil {
		return nil, err
	}

	b, err := h.status.encode(h.Server.Status)
	return wrapperspb.Bytes(b), err
}
