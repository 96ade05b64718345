package experiment

import "slices"

// Clients is clients.json: who the clients of a run are, and how many examples of every class each holds.
type Clients struct {
	Classes []string     `json:"classes"`
	Clients []ClientInfo `json:"clients"`
}

// ClientInfo is one client of a run.
type ClientInfo struct {
	Backbone string `json:"backbone"`
	Domain   string `json:"domain,omitempty"`
	Train    []int  `json:"train"` // examples of each class
	Val      []int  `json:"val"`
	Test     []int  `json:"test"`
	New      bool   `json:"new,omitempty"` // it never trains; such clients come last
}

// Known are the clients that take part, which lists by client are about: all but those that never train.
func (c Clients) Known() []ClientInfo {
	return slices.DeleteFunc(slices.Clone(c.Clients), func(k ClientInfo) bool { return k.New })
}

// Clients describes the clients.
func (b *Built) Clients() Clients {
	out := Clients{Classes: b.Set.Classes}
	for i, p := range b.Parts {
		p.Train = b.trainedOn(i)
		train, val, test := p.Of(b.Set)
		c := ClientInfo{Domain: p.Domain, Train: b.Set.Counts(train), Val: b.Set.Counts(val), Test: b.Set.Counts(test)}
		if i < len(b.Assigned) {
			c.Backbone = b.Assigned[i].Name
		}
		if b.Engine != nil {
			c.New = slices.Contains(b.Engine.Plan.New, i)
		}
		out.Clients = append(out.Clients, c)
	}
	return out
}
