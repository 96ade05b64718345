package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/methods"
)

// Fact is one thing that is known of an experiment across machines before anybody trains: what runs, and under which
// protection. What a client requires (Requirement), what it is shown and what the server's status tells are these.
type Fact struct {
	Name  string
	Value any // bool, string, int, float64 (+Inf for no bound) or []string; nil where there is nothing to tell
	Help  string
}

// Text is the value as it is shown.
func (f Fact) Text() string {
	switch v := f.Value.(type) {
	case nil:
		return "none"
	case bool:
		return map[bool]string{true: "on", false: "off"}[v]
	case float64:
		if math.IsInf(v, 1) {
			return "infinite"
		}
		return strconv.FormatFloat(v, 'g', 4, 64)
	case []string:
		if len(v) == 0 {
			return "none"
		}
		return strings.Join(v, ", ")
	}
	return fmt.Sprint(f.Value)
}

// MarshalJSON writes name and value; an epsilon without a bound is the text infinite, which JSON has no number for.
func (f Fact) MarshalJSON() ([]byte, error) {
	value := f.Value
	if v, ok := value.(float64); ok && math.IsInf(v, 0) {
		value = f.Text()
	}
	return json.Marshal(struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}{f.Name, value})
}

// UnmarshalJSON reads what MarshalJSON wrote; lists are of text, numbers float64.
func (f *Fact) UnmarshalJSON(b []byte) error {
	var v struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if list, ok := v.Value.([]any); ok {
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = fmt.Sprint(x)
		}
		v.Value = texts
	}
	f.Name, f.Value = v.Name, v.Value
	return nil
}

// Facts are in the order in which they are shown.
type Facts []Fact

// Link is what facts depend on beside the configuration.
type Link struct {
	TLS      bool // messages are encrypted, and both sides have certificates
	Insecure bool // noise comes from the run's seed (--insecure-dp)
}

// outlined is an experiment that knows no data, as its facts need it.
type outlined struct {
	*Built
	Link
	dp      methods.DP
	private bool
}

// factTable is every fact: what a requirement may name beside the keys of the configuration.
var factTable = []struct {
	name, help string
	of         func(o outlined) any
}{
	{"method", "the method", func(o outlined) any { return o.Config.Method }},
	{"with", "its wrappers, inner to outer", func(o outlined) any { return slices.Clone(o.Config.With) }},
	{"rounds", "times that clients train and the server merges", func(o outlined) any { return o.Engine.Plan.Rounds }},
	{"clients", "how many there are", func(o outlined) any { return o.Config.Partition.Clients }},
	{"clients_per_round", "how many train in a round, or on average", func(o outlined) any {
		return o.sampling().Size
	}},
	{"sampling", "how a round's clients are drawn: fixed or poisson",
		func(o outlined) any { return o.Config.Sampling }},
	{"shares_examples", "a client's number of training examples is told to the server", func(o outlined) any {
		return o.layer == nil
	}},
	{"statistics", "statistics rounds: what the server asks of clients' data before they train",
		func(o outlined) any { return methods.StatisticNames(o.Method) }},
	{"extras", "what the server needs of a client beside the mean of parameters, in words", func(o outlined) any {
		_, beside, err := methods.Averages(o.Method)
		switch {
		case o.private: // or it would have been refused
		case err != nil:
			return err.Error()
		case len(beside) > 0:
			return strings.Join(beside, ", ")
		}
		return nil
	}},
	{"tests", "rounds between tests; each tells the server how well the client's own images are classified",
		func(o outlined) any { return o.Config.Eval.Every }},
	{"tests.confusion", "tests also tell which class was taken for which, as counts", func(o outlined) any {
		return o.Config.Eval.Confusion == everyone
	}},
	{"tls", "messages are encrypted, and server and client prove by certificates who they are",
		func(o outlined) any { return o.TLS }},
	{"secure_aggregation", "the server learns sums of uploads only", func(o outlined) any { return o.layer != nil }},
	{"secure_aggregation.threshold", "share of a round's clients that any sum has at least", func(o outlined) any {
		return ifOn(o.layer != nil, o.Config.SecureAggregation.Threshold)
	}},
	{"secure_aggregation.least", "clients that any sum has at least", func(o outlined) any {
		return ifOn(o.layer != nil, o.together())
	}},
	{"dp", "differential privacy of clients", func(o outlined) any { return o.private }},
	{"dp.where", "who clips and adds the noise: server or client", func(o outlined) any {
		return ifOn(o.private, o.dp.Where)
	}},
	{"dp.clip", "C, longest update of a client", func(o outlined) any { return ifOn(o.private, o.dp.Clip) }},
	{"dp.noise", "z, standard deviation of the noise on the sum of a round, over clip", func(o outlined) any {
		return ifOn(o.private, o.dp.Noise)
	}},
	{"dp.delta", "for which epsilons hold", func(o outlined) any { return ifOn(o.private, o.dp.Delta) }},
	{"dp.secret", "noise comes from secrets of whoever adds it, not from the run's seed",
		func(o outlined) any { return ifOn(o.private, !o.Insecure) }},
	{"dp.epsilon", "after all rounds, against those who see the shared parameters and not who trained when",
		func(o outlined) any {
			sampled, _ := o.promised()
			return ifOn(o.private, sampled)
		}},
	{"dp.epsilon_unsampled", "likewise, against those who know who trained when: with secure aggregation the clients " +
		"of a round know each other", func(o outlined) any {
		_, unsampled := o.promised()
		return ifOn(o.private, unsampled)
	}},
	{"dp.epsilon_server", "likewise, against the server; infinite with where: server", func(o outlined) any {
		if !o.private || o.Insecure {
			return ifOn(o.private, math.Inf(1))
		}
		return o.dp.Against(o.sampling(), o.Engine.Plan.Rounds, o.together())
	}},
}

// ifOn is the value of a layer that may be off.
func ifOn(on bool, value any) any {
	if on {
		return value
	}
	return nil
}

// promised are epsilons that a client can reckon with before the first round.
func (o outlined) promised() (sampled, unsampled float64) {
	if o.Insecure {
		return math.Inf(1), math.Inf(1)
	}
	return o.dp.Promised(o.sampling(), o.Engine.Plan.Rounds)
}

// together is how many uploads the server sees as one sum at least.
func (o outlined) together() int {
	if o.layer == nil {
		return 1
	}
	return o.layer.Facts().Least
}

// Facts are those of a configuration across machines, as it stands: no data is opened. Every number in them is computed
// here, from the configuration.
func (c Config) Facts(l Link) (Facts, error) {
	c.Data.Config = withoutData(c.Data.Config)
	b := &Built{Config: c, Set: &data.Set{}}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := b.define(); err != nil {
		return nil, err
	}
	o := outlined{Built: b, Link: l}
	o.dp, o.private = methods.Private(b.Method)
	var out Facts
	for _, f := range factTable {
		out = append(out, Fact{f.name, f.of(o), f.help})
	}
	return out, nil
}

// AllFacts are the names and meanings of all facts, without values.
func AllFacts() Facts {
	var out Facts
	for _, f := range factTable {
		out = append(out, Fact{Name: f.name, Help: f.help})
	}
	return out
}

// Find gives a fact by name.
func (f Facts) Find(name string) (Fact, bool) {
	for _, x := range f {
		if x.Name == name {
			return x, true
		}
	}
	return Fact{}, false
}
