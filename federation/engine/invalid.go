package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// dropInvalid passes replies to the method. If the method returns an error or panics over replies of clients on other
// machines, dropInvalid leaves out those that valid does not return, and calls the method again, from the same state,
// with the others. Where these are too few (method.TooFewError), it returns no reply. Clients of this process are
// trusted, so that such an error is one of the program. It is also one of the program if no reply is valid, of several,
// in maxFailures calls in a row.
func (s *server) dropInvalid(ctx context.Context, global *method.Global, replies []message.Reply,
	do func(global *method.Global, ups []method.Upload) error) ([]message.Reply, error) {
	if !s.cohort.Traits().Claimed {
		return replies, do(global, message.UploadsOf(replies))
	}

	pass := func(global *method.Global, list []message.Reply) error {
		return recovered(global, func() error { return do(global, message.UploadsOf(list)) })
	}

	before := cloneGlobal(global)
	failed := pass(global, replies)
	if failed == nil {
		s.failures = 0
		return replies, nil
	}

	*global = *before
	if len(replies) == 0 || errors.As(failed, new(method.TooFewError)) {
		return nil, failed
	}

	good, why := valid(replies, func(list []message.Reply) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := pass(cloneGlobal(before), list)
		if errors.As(err, new(method.TooFewError)) {
			return nil
		}
		return err
	})

	if ctx.Err() != nil { // the run ends, and no client is to blame
		return nil, context.Cause(ctx)
	}

	fit := chosen(replies, good)
	var err error
	if len(fit) > 0 {
		s.failures, err = 0, pass(global, fit)
	}

	few := errors.As(err, new(method.TooFewError)) // which says nothing of replies that do not fit together
	for i, r := range replies {
		if why[i] != nil || !few && !slices.Contains(good, i) {
			s.cohort.Rejected(global.Round, r.Client, cmp.Or(why[i], failed))
		}
	}

	if err != nil {
		return nil, err
	}

	if len(fit) > 0 {
		return fit, nil
	}

	if len(replies) > 1 {
		s.failures++
	}

	if s.failures == maxFailures {
		return nil, failed
	}

	return nil, nil
}

// valid returns the numbers of the replies over which a method works: those over which it works one by one or, if it
// fails over these together, all but the only one that does not fit to the others. If there is no such one, those count
// that fit to the earlier ones. why holds the errors of single replies.
func valid(replies []message.Reply, try func([]message.Reply) error) (good []int, why map[int]error) {
	works := func(which []int) bool { return try(chosen(replies, which)) == nil }
	why = map[int]error{}
	var all, odd []int
	for i := range replies {
		all = append(all, i)
		if err := try(replies[i : i+1]); err != nil {
			why[i] = err
		} else {
			good = append(good, i)
		}
	}

	if len(good) > 0 && len(good) < len(all) && works(good) {
		return good, why
	}

	for i := 0; i < len(all) && len(all) > 1 && len(odd) < 2; i++ {
		if works(slices.Delete(slices.Clone(all), i, i+1)) {
			odd = append(odd, i)
		}
	}

	if len(odd) == 1 {
		return slices.Delete(all, odd[0], odd[0]+1), why
	}

	var fit []int
	for _, i := range good {
		if with := append(fit[:len(fit):len(fit)], i); works(with) {
			fit = with
		}
	}

	return fit, why
}

func chosen(replies []message.Reply, which []int) []message.Reply {
	return convert.Slice(which, func(k int) message.Reply { return replies[k] })
}

// maxFailures bounds the calls in a row in which a method fails over all replies. Few clients that lie are hardly drawn
// together, without others, so often.
const maxFailures = 3

// recovered calls do, which changes a state, and returns a panic over the content of an upload as an error.
func recovered(global *method.Global, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method failed on the uploads: %v", p)
		}
	}()

	if err := do(); err != nil {
		return err
	}

	return checkFinite(global)
}

// checkFinite returns an error for a state with numbers that are not finite.
func checkFinite(global *method.Global) error {
	parts := []tensor.Map{global.Shared, global.Broadcast, global.State}
	for _, id := range slices.Sorted(maps.Keys(global.PerClient)) {
		parts = append(parts, global.PerClient[id])
	}

	for _, part := range parts {
		if err := message.CheckFinite("", part); err != nil {
			return err
		}
	}

	return nil
}

// cloneGlobal copies a state and the tensors in it. Tensors that several clients share are copied once.
func cloneGlobal(global *method.Global) *method.Global {
	copies := map[*tensor.Tensor]*tensor.Tensor{}
	clone := func(m tensor.Map) tensor.Map {
		out := make(tensor.Map, len(m))
		for name, t := range m {
			if copies[t] == nil {
				copies[t] = t.Clone()
			}
			out[name] = copies[t]
		}
		return out
	}

	c := *global
	c.Shared, c.Broadcast, c.State = clone(global.Shared), clone(global.Broadcast), clone(global.State)
	c.Notes, c.PerClient = maps.Clone(global.Notes), map[int]tensor.Map{}
	for id, m := range global.PerClient {
		c.PerClient[id] = clone(m)
	}

	return &c
}
