package experiment

import (
	"math"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/methods"
)

// Link is what facts depend on beside the configuration.
type Link struct {
	TLS      bool // messages are encrypted, and both sides have certificates
	Insecure bool // noise comes from the run's seed (--insecure-dp)
}

// factSource is an experiment that knows no data, as its facts need it.
type factSource struct {
	*Built
	Link
	dp      methods.DP
	private bool
}

// factTable is every fact: what a requirement may name beside the keys of the configuration.
var factTable = []struct {
	name, help string
	value      func(o factSource) any
}{
	{"method", "the method", func(o factSource) any { return o.Config.Method }},
	{"with", "its wrappers, inner to outer", func(o factSource) any { return slices.Clone(o.Config.With) }},
	{"rounds", "times that clients train and the server merges",
		func(o factSource) any { return o.Engine.Plan.Rounds }},
	{"clients", "how many there are", func(o factSource) any { return o.Config.Partition.Clients }},
	{"clients_per_round", "how many train in a round, or on average", func(o factSource) any {
		return o.sampling().Size
	}},
	{"sampling", "how a round's clients are drawn: fixed or poisson",
		func(o factSource) any { return o.Config.Sampling }},
	{"shares_examples", "a client's number of training examples is told to the server", func(o factSource) any {
		return o.layer == nil
	}},
	{"statistics", "statistics rounds: what the server asks of clients' data before they train",
		func(o factSource) any { return methods.StatisticNames(o.Method) }},
	{"extras", "what the server needs of a client beside the mean of parameters, in words", func(o factSource) any {
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
		func(o factSource) any { return o.Config.Eval.Every }},
	{"tests.confusion", "tests also tell which class was taken for which, as counts", func(o factSource) any {
		return o.Config.Eval.Confusion == everyone
	}},
	{"tls", "messages are encrypted, and server and client prove by certificates who they are",
		func(o factSource) any { return o.TLS }},
	{"secure_aggregation", "the server learns sums of uploads only", func(o factSource) any { return o.layer != nil }},
	{"secure_aggregation.threshold", "share of a round's clients that any sum has at least", func(o factSource) any {
		return ifOn(o.layer != nil, o.Config.SecureAggregation.Threshold)
	}},
	{"secure_aggregation.least", "clients that any sum has at least", func(o factSource) any {
		return ifOn(o.layer != nil, o.leastInSum())
	}},
	{"dp", "differential privacy of clients", func(o factSource) any { return o.private }},
	{"dp.where", "who clips and adds the noise: server or client", func(o factSource) any {
		return ifOn(o.private, o.dp.Where)
	}},
	{"dp.clip", "C, longest update of a client", func(o factSource) any { return ifOn(o.private, o.dp.Clip) }},
	{"dp.noise", "z, standard deviation of the noise on the sum of a round, over clip", func(o factSource) any {
		return ifOn(o.private, o.dp.Noise)
	}},
	{"dp.delta", "for which epsilons hold", func(o factSource) any { return ifOn(o.private, o.dp.Delta) }},
	{"dp.secret", "noise comes from secrets of whoever adds it, not from the run's seed",
		func(o factSource) any { return ifOn(o.private, !o.Insecure) }},
	{"dp.epsilon", "after all rounds, against those who see the shared parameters and not who trained when",
		func(o factSource) any {
			sampled, _ := o.epsilons()
			return ifOn(o.private, sampled)
		}},
	{"dp.epsilon_unsampled", "likewise, against those who know who trained when: with secure aggregation the clients " +
		"of a round know each other", func(o factSource) any {
		_, unsampled := o.epsilons()
		return ifOn(o.private, unsampled)
	}},
	{"dp.epsilon_local", "likewise, of a client that trains in every round, against those who see what it keeps; " +
		"infinite where nothing bounds its steps", func(o factSource) any {
		e, on := methods.EpsilonLocal(o.Method, o.Engine.Plan.Rounds)
		if o.Insecure {
			e = math.Inf(1)
		}
		return ifOn(on, e)
	}},
	{"dp.epsilon_server", "likewise, against the server; infinite with where: server", func(o factSource) any {
		if !o.private || o.Insecure {
			return ifOn(o.private, math.Inf(1))
		}
		return o.dp.Against(o.sampling(), o.Engine.Plan.Rounds, o.leastInSum())
	}},
}

// ifOn is the value of a layer that may be off.
func ifOn(on bool, value any) any {
	if on {
		return value
	}
	return nil
}

// epsilons are epsilons that a client can reckon with before the first round.
func (o factSource) epsilons() (sampled, unsampled float64) {
	if o.Insecure {
		return math.Inf(1), math.Inf(1)
	}
	return o.dp.Promised(o.sampling(), o.Engine.Plan.Rounds)
}

// leastInSum is how many uploads the server sees as one sum at least.
func (o factSource) leastInSum() int {
	if o.layer == nil {
		return 1
	}
	return o.layer.Facts().Least
}

// Facts are those of a configuration across machines, as it stands: no data is opened. Every number in them is computed
// here, from the configuration.
func (c Config) Facts(l Link) (facts.Facts, error) {
	c.Data.Config = withoutData(c.Data.Config)
	b := &Built{Config: c, Set: &data.Set{}}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := b.define(); err != nil {
		return nil, err
	}
	o := factSource{Built: b, Link: l}
	o.dp, o.private = methods.Private(b.Method)
	out := AllFacts()
	for i, f := range factTable {
		out[i].Value = f.value(o)
	}
	return out, nil
}

// AllFacts are the names and meanings of all facts, without values.
func AllFacts() facts.Facts {
	var out facts.Facts
	for _, f := range factTable {
		out = append(out, facts.Fact{Name: f.name, Help: f.help})
	}
	return out
}
