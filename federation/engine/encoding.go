package engine

import (
	"fmt"
	"promptfed/federation/method"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
	"slices"
)

func uploadTensors(u method.Upload) tensor.Map {
	return tensor.Map{}.Put(sharedPart, u.Shared).Put(extraPart, u.Extra)
}

func (o Order) tensors() tensor.Map {
	m := tensor.Map{}.Put(sharedPart, o.Shared).Put(downPart, o.Down)
	for _, id := range o.Clients {
		m.Put(eachPart, o.Each[id])
	}
	return m
}

func reencode(o Order) (Order, error) {
	m, err := roundTrip(o.tensors())
	if err != nil {
		return o, err
	}
	return o.with(m), nil
}

func (o Order) with(m tensor.Map) Order {
	o.Shared, o.Down = m.Under(sharedPart), m.Under(downPart)
	if each := m.Under(eachPart); len(each) > 0 {
		o.Each = map[int]tensor.Map{o.Clients[0]: each}
	}
	return o
}

func roundTrip(m tensor.Map) (tensor.Map, error) {
	b, err := wire.Encode(m)
	if err != nil {
		return nil, err
	}
	return wire.Decode(b)
}

// sortReplies puts replies in the order of clients.
func sortReplies(r []Reply) { slices.SortFunc(r, func(a, b Reply) int { return a.Client - b.Client }) }

// Tensors are what travels of an order to one client beside its header.
func (o Order) Tensors() tensor.Map { return o.tensors() }

// With is the order with the tensors that came with it.
func (o Order) With(m tensor.Map) (Order, error) {
	if err := onlyUnder(m, sharedPart, downPart, eachPart); err != nil {
		return o, err
	}
	if len(o.Clients) != 1 {
		return o, fmt.Errorf("an order is for one client, this one for %d", len(o.Clients))
	}
	return o.with(m), nil
}

// Tensors are what travels of a reply beside its header.
func (r Reply) Tensors() tensor.Map {
	return uploadTensors(r.Upload).Put(termsPart, r.Stats.Terms.tensors())
}

// UploadSize is how many bytes the encoded upload has, without what is only measured.
func (r Reply) UploadSize() int { return wire.Size(uploadTensors(r.Upload)) }

// With is the reply with the tensors that came with it.
func (r Reply) With(m tensor.Map) (Reply, error) {
	if err := onlyUnder(m, sharedPart, extraPart, termsPart); err != nil {
		return r, err
	}
	var err error
	if r.Stats.Terms, err = lossTermsOf(m.Under(termsPart)); err != nil {
		return r, err
	}
	r.Upload.Shared, r.Upload.Extra = m.Under(sharedPart), m.Under(extraPart)
	return r, nil
}

// onlyUnder refuses tensors that belong to no part of a message.
func onlyUnder(m tensor.Map, parts ...string) error {
	n := 0
	for _, p := range parts {
		n += len(m.Under(p))
	}
	if n != len(m) {
		return fmt.Errorf("a message has tensors outside of %v: %.200q", parts, m.Names())
	}
	return nil
}

// Parts of a message.
const (
	sharedPart = "shared"
	extraPart  = "extra"
	downPart   = "down"
	eachPart   = "each"
	termsPart  = "terms"
)
