package experiment

import (
	"math"
	"slices"
	"strings"

	"promptfed/federation/data/sets"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/methods"
	"promptfed/federation/methods/wrappers/uploads"
)

// Link holds the values besides the configuration that determine facts.
type Link struct {
	TLS      bool // messages are encrypted, and both sides have certificates
	Insecure bool // noise comes from the run's seed (--insecure-dp)
}

// factSource is a protocol as its facts need it.
type factSource struct {
	protocol *Protocol
	link     Link
	dp       uploads.DP
	private  bool
}

// factTable lists every fact: the names that a requirement may have besides keys of the configuration.
var factTable = []struct {
	name, help string
	value      func(o factSource) any
}{
	{"method", "the method", func(o factSource) any { return o.protocol.Config.Method }},
	{"with", "its wrappers, inner to outer", func(o factSource) any { return slices.Clone(o.protocol.Config.With) }},
	{"rounds", "number of rounds",
		func(o factSource) any { return o.protocol.Experiment.Plan.Rounds }},
	{"clients", "number of clients", func(o factSource) any { return o.protocol.Config.Partition.Clients }},
	{"clients_per_round", "number of clients that train in a round, or on average", func(o factSource) any {
		return o.protocol.Sampling().Size
	}},
	{"sampling", "how the clients of a round are drawn: fixed or poisson",
		func(o factSource) any { return o.protocol.Config.Sampling }},
	{"shares_examples", "the server learns a client's number of training examples",
		func(o factSource) any { return o.protocol.SharesExamples() }},
	{"statistics", "statistics rounds: what clients compute for the server from their data before they train",
		func(o factSource) any { return methods.StatisticNames(o.protocol.Experiment.Method) }},
	{"extras", "what the server needs from a client beside the mean of parameters, in words", func(o factSource) any {
		_, beside, err := methods.AveragedUploads(o.protocol.Experiment.Method)
		switch {
		case o.private: // or it would have been refused
		case err != nil:
			return err.Error()
		case len(beside) > 0:
			return strings.Join(beside, ", ")
		}
		return nil
	}},
	{"tests", "rounds between tests; in each the server learns how well the client's own images are classified",
		func(o factSource) any { return o.protocol.Config.Eval.Every }},
	{"tests.confusion", "tests also send a confusion matrix, as counts", func(o factSource) any {
		return o.protocol.Config.Eval.Confusion == everyone
	}},
	{"tls", "messages are encrypted, and server and clients authenticate with certificates",
		func(o factSource) any { return o.link.TLS }},
	{"secure_aggregation", "the server learns only sums of uploads",
		func(o factSource) any { return o.protocol.Aggregation != nil }},
	{"secure_aggregation.threshold", "smallest share of its clients that a sum must hold", func(o factSource) any {
		return ifOn(o.protocol.Aggregation != nil, o.protocol.Config.SecureAggregation.Threshold)
	}},
	{"secure_aggregation.least", "smallest number of clients in any sum", func(o factSource) any {
		return ifOn(o.protocol.Aggregation != nil, o.leastInSum())
	}},
	{"secure_aggregation.bound", "how far a single client that lies can move a number of the mean, as the sum shows " +
		"no more than that it is possible", func(o factSource) any {
		return ifOn(o.protocol.Aggregation != nil, o.protocol.Config.SecureAggregation.Clip)
	}},
	{"dp", "differential privacy of clients", func(o factSource) any { return o.private }},
	{"dp.where", "who clips and adds the noise: server or client", func(o factSource) any {
		return ifOn(o.private, o.dp.Where)
	}},
	{"dp.clip", "C, largest norm of a client's update", func(o factSource) any { return ifOn(o.private, o.dp.Clip) }},
	{"dp.noise", "z, standard deviation of the noise on the sum of a round, divided by clip", func(o factSource) any {
		return ifOn(o.private, o.dp.Noise)
	}},
	{"dp.delta", "delta of the epsilons", func(o factSource) any { return ifOn(o.private, o.dp.Delta) }},
	{"dp.secret", "noise comes from secrets of the side that adds it, not from the run's seed",
		func(o factSource) any { return ifOn(o.private, !o.link.Insecure) }},
	{"dp.epsilon", "epsilon after all rounds, against those who see the shared parameters but not who trained when",
		func(o factSource) any {
			sampled, _ := o.epsilons()
			return ifOn(o.private, sampled)
		}},
	{"dp.epsilon_unsampled", "epsilon against those who know who trained when: with secure aggregation the clients " +
		"of a round know each other", func(o factSource) any {
		_, unsampled := o.epsilons()
		return ifOn(o.private, unsampled)
	}},
	{"dp.epsilon_local", "epsilon of a client that trains in every round, against those who see what it keeps; " +
		"infinite where its steps are not limited", func(o factSource) any {
		e, on := methods.EpsilonLocal(o.protocol.Experiment.Method, o.protocol.Experiment.Plan.Rounds)
		if o.link.Insecure {
			e = math.Inf(1)
		}
		return ifOn(on, e)
	}},
	{"dp.epsilon_server", "epsilon against the server; infinite with where: server", func(o factSource) any {
		if !o.private || o.link.Insecure {
			return ifOn(o.private, math.Inf(1))
		}
		return o.dp.Against(o.protocol.Sampling(), o.protocol.Experiment.Plan.Rounds, o.leastInSum())
	}},
}

// ifOn returns the value of a protection that may be off.
func ifOn(on bool, value any) any {
	if on {
		return value
	}
	return nil
}

// epsilons returns the epsilons that a client knows before the first round.
func (o factSource) epsilons() (sampled, unsampled float64) {
	if o.link.Insecure {
		return math.Inf(1), math.Inf(1)
	}
	return o.dp.Promised(o.protocol.Sampling(), o.protocol.Experiment.Plan.Rounds)
}

// leastInSum returns the least number of uploads in a sum that the server sees.
func (o factSource) leastInSum() int {
	if o.protocol.Aggregation == nil {
		return 1
	}
	return o.protocol.Aggregation.Guarantees().Least
}

// Facts returns the facts of a configuration across machines, without data. Every number in them is computed here, from
// the configuration.
func (c Config) Facts(link Link) (facts.Facts, error) {
	c.Data.Config = sets.Defaults()
	if err := c.CheckWithoutData(); err != nil {
		return nil, err
	}

	p, err := newProtocol(c, members{clients: c.Partition.Clients})
	if err != nil {
		return nil, err
	}

	o := factSource{protocol: p, link: link}
	o.dp, o.private = methods.DPLayer(p.Experiment.Method)
	out := AllFacts()
	for i, f := range factTable {
		out[i].Value = f.value(o)
	}

	return out, nil
}

// AllFacts returns the names and meanings of all facts, without values.
func AllFacts() facts.Facts {
	var out facts.Facts
	for _, f := range factTable {
		out = append(out, facts.Fact{Name: f.name, Help: f.help})
	}
	return out
}
