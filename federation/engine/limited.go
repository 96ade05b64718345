package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// MaxLoss is how large the loss of a client elsewhere may be, on either side of 0. Cross entropy of CLIP's scores is at
// most twice their scale, 200; the rest is room for other terms.
const MaxLoss = 1e6

// Limited is what the record of a round says of clients elsewhere that were not taken at their word. Both lists are
// sorted by client.
type Limited struct {
	Refused []Refusal `json:"refused,omitempty"` // replies of any kind that count nothing
	Cut     []Cut     `json:"cut,omitempty"`     // uploads that weigh less than they said
}

// Refusal is one reply that was refused.
type Refusal struct {
	Client int    `json:"client"`
	Reason string `json:"reason"`
}

// Cut is the number of examples that a client's upload claims and the one that it was averaged with.
type Cut struct {
	Client  int `json:"client"`
	Claimed int `json:"claimed"`
	Counted int `json:"counted"`
}

// LimitedClient is what a summary says of a client that was not taken at its word.
type LimitedClient struct {
	Client  int    `json:"client"`
	Refused int    `json:"refused,omitempty"` // replies
	Reason  string `json:"reason,omitempty"`  // of the first of them
	Cut     int    `json:"cut,omitempty"`     // rounds
	Claimed int    `json:"claimed,omitempty"` // examples, in the last of them
	Counted int    `json:"counted,omitempty"` // likewise, that it was averaged with
}

// limitedClients puts together what records say of clients, sorted; nil where all were taken at their word.
func limitedClients(records []Record) []LimitedClient {
	var out []LimitedClient
	of := func(client int) *LimitedClient {
		i, there := slices.BinarySearchFunc(out, client, func(c LimitedClient, k int) int { return c.Client - k })
		if !there {
			out = slices.Insert(out, i, LimitedClient{Client: client})
		}
		return &out[i]
	}
	for _, r := range records {
		for _, x := range r.Refused {
			c := of(x.Client)
			if c.Refused++; c.Refused == 1 {
				c.Reason = x.Reason
			}
		}
		for _, x := range r.Cut {
			c := of(x.Client)
			c.Cut++
			c.Claimed, c.Counted = x.Claimed, x.Counted
		}
	}
	return out
}

// String says it in one line.
func (c LimitedClient) String() string {
	var parts []string
	if c.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d of its replies refused (%s)", c.Refused, c.Reason))
	}
	if c.Cut > 0 {
		parts = append(parts, fmt.Sprintf("claims %d examples and was averaged as one of %d in %d rounds", c.Claimed,
			c.Counted, c.Cut))
	}
	return fmt.Sprintf("client %d: %s", c.Client, strings.Join(parts, "; "))
}

// Extras are the tensors that a reply to an order may have beside shared parameters, as the method declares them; ok is
// false for an order that is none of the method's.
func (o Order) Extras(of method.Method, task method.Task) (declared []method.Extra, ok bool) {
	if o.Kind == Train {
		return of.Extras(task), true
	}
	if q, ok := o.survey(of); ok {
		return q.Answer(task), true
	}
	return nil, false
}

// survey is what an order asks; ok is false where the method has no survey of that name.
func (o Order) survey(of method.Method) (method.Statistic, bool) {
	all := slices.Concat(of.Statistics(o.Round), of.Statistics(0))
	i := slices.IndexFunc(all, func(q method.Statistic) bool { return q.Name == o.Survey })
	if o.Kind != Ask || i < 0 {
		return method.Statistic{}, false
	}
	return all[i], true
}

// CheckTerms refuses measurements of terms that the method's loss does not have.
func (t *LossTerms) CheckTerms(of method.Method, task method.Task) error {
	if t == nil {
		return nil
	}
	s := method.NewScope(task, of.Params(task))
	terms, err := s.Terms(of.Loss(s, of.Logits(s)))
	if err != nil {
		return err
	}
	for _, m := range t.Terms {
		if m.Name != Correction && !slices.ContainsFunc(terms, func(d method.Term) bool { return d.Name == m.Name }) {
			return fmt.Errorf("the upload measures the term %.100q; the method's loss has none of that name", m.Name)
		}
	}
	return nil
}

// CheckExtras refuses tensors that are not exactly those that a method declares, numbers that are none, and counts of
// more examples than the client has.
func CheckExtras(want []method.Extra, got tensor.Map, examples int) error {
	declared := map[string]bool{}
	for _, w := range want {
		declared[w.Name] = true
		t := got[w.Name]
		if t == nil || t.IsInt() || !fits(t.Shape, w.Shape) {
			return fmt.Errorf("the upload has %v for %s, which must be float32%v; the client runs another "+
				"experiment", t,
				w.Name, w.Shape)
		}
		if !w.Counts {
			continue
		}
		sum := 0.0
		for _, v := range t.Data {
			if !(v >= 0) || float64(v) != math.Trunc(float64(v)) {
				return fmt.Errorf("the upload counts %v examples of a class in %s", v, w.Name)
			}
			sum += float64(v)
		}
		if !(sum <= float64(examples)) {
			return fmt.Errorf("the upload counts %.10g examples in %s; the client has %d", sum, w.Name, examples)
		}
	}
	for _, name := range got.Names() {
		if !declared[name] {
			return fmt.Errorf("the upload has the extra %.100q; the method has none of that name", name)
		}
	}
	return nil
}

// fits tells whether a shape is the declared one, in which -1 is any size.
func fits(shape, declared []int) bool {
	return slices.EqualFunc(shape, declared, func(n, want int) bool { return want < 0 || n == want })
}
