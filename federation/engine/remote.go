package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// Remote is a Cohort whose clients are elsewhere: the server has no object of theirs, no data and no state, only what
// they say of themselves.
type Remote interface {
	Cohort
	// Members are all clients by number. One that never joined yet is not Joined.
	Members() []Member
	// Save gives what the cohort has to remember with a committed round, Load gives it back when a run goes on.
	Save() ([]byte, error)
	Load([]byte) error
	// Limited is what was refused of clients and what counts less than they said, since it was asked last.
	Limited() Limited
}

// Member is what the server knows of a client elsewhere.
type Member struct {
	Joined bool        `json:"joined"`
	Task   method.Task `json:"task"` // its backbone; Client, Clients and Classes are filled in
	Domain string      `json:"domain,omitempty"`
}

// Against finds why a client cannot be averaged with another: a shared parameter of another shape. Both tasks must name
// the same numbers of clients and classes.
func (m Member) Against(other Member, of method.Method) error {
	first := map[string]string{}
	for _, p := range of.Params(other.Task) {
		if p.Owner == method.Shared {
			first[p.Name] = fmt.Sprint(p.Shape)
		}
	}
	for _, p := range of.Params(m.Task) {
		if p.Owner != method.Shared {
			continue
		}
		if shape, here := first[p.Name], fmt.Sprint(p.Shape); shape != here {
			return unalike(p.Name, here, m.Task.Client, m.Task.Backbone, fmt.Sprintf("%s on client %d (backbone %s)",
				shape, other.Task.Client, other.Task.Backbone))
		}
	}
	return nil
}

func unalike(param, shape string, client int, backbone, others string) error {
	return fmt.Errorf("parameter %s is %s on client %d (backbone %s) and %s; it cannot be averaged: use backbones of "+
		"one text width, and of one image tower where its prompts are shared",
		param, shape, client, backbone, others)
}

// members are all clients as the server knows them.
func (e *Experiment) members(remote Remote) []Member {
	var out []Member
	if remote != nil {
		out = slices.Clone(remote.Members())
		for i := range out {
			out[i].Task.Client, out[i].Task.Clients, out[i].Task.Classes = i, len(out), len(e.Classes)
		}
		return out
	}
	for _, c := range e.Clients {
		out = append(out, Member{Joined: true, Task: e.task(c), Domain: c.Domain})
	}
	return out
}

// peers are the clients as methods know them.
func peers(members []Member) []method.ClientInfo {
	var out []method.ClientInfo
	for _, m := range members {
		p := method.ClientInfo{Domain: m.Domain}
		if m.Joined {
			p.Backbone, p.Dim = m.Task.Backbone, m.Task.Dim
		}
		out = append(out, p)
	}
	return out
}

// checkMembers finds what cannot work with clients elsewhere, and gives the first that joined.
func (e *Experiment) checkMembers(members []Member) (Member, error) {
	if e.Synthetic != nil {
		return Member{}, errors.New("a server of clients elsewhere has no images of its own; run the experiment in " +
			"one place or leave out synthetic")
	}
	i := slices.IndexFunc(members, func(m Member) bool { return m.Joined })
	if i < 0 {
		return Member{}, errors.New("no client has joined")
	}
	for _, m := range members {
		if m.Joined {
			if err := m.Against(members[i], e.Method); err != nil {
				return Member{}, err
			}
		}
	}
	return members[i], nil
}

// CheckExams finds what this side's clients could not be examined in.
func (e *Experiment) CheckExams() error { return e.checkExams() }

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

// Refuse finds why a reply cannot count: an upload with other names or shapes than the order's parameters, values that
// are no finite numbers, or counts that no client has.
//
// sealed tells that uploads are behind a Guard: what is in them is for the layer to check that opens them.
func (o Order) Refuse(r Reply, sealed bool) error {
	switch o.Kind {
	case Train:
		if l := r.Stats.Loss; !(math.Abs(l) <= MaxLoss) {
			return fmt.Errorf("the loss %.4g is none: it must lie between -%g and %[2]g", l, float64(MaxLoss))
		}
		if sealed {
			return finite("upload ", uploadTensors(r.Upload))
		}
		if o.Sealed {
			if len(r.Upload.Shared) > 0 || r.Upload.N != 1 {
				return fmt.Errorf("the upload has parameters %v and counts %d examples; it must be sealed",
					r.Upload.Shared.Names(), r.Upload.N)
			}
			return finite("upload ", uploadTensors(r.Upload))
		}
		for _, name := range o.Shared.Names() {
			if t := r.Upload.Shared[name]; t != nil && t.IsInt() != o.Shared[name].IsInt() {
				return fmt.Errorf("parameter %s of the upload has another type of numbers", name)
			}
		}
		return checkUpload(o.Shared, r.Upload)
	case Ask:
		if r.Upload.N < 1 {
			return fmt.Errorf("the answer counts %d examples; it must count 1 or more", r.Upload.N)
		}
		if len(r.Upload.Shared) > 0 {
			return fmt.Errorf("the answer to a survey has parameters %v; it may have none", r.Upload.Shared.Names())
		}
		return finite("upload ", uploadTensors(r.Upload))
	}
	return o.checkTest(r)
}
