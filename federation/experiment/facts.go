package experiment

import (
	"math"
	"slices"
	"strings"

	"promptfed/federation/data/sets"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/methods"
)

// Link holds the values besides the configuration that determine facts.
type Link struct {
	TLS      bool // messages are encrypted, and both sides have certificates
	Insecure bool // noise comes from the run's seed (--insecure-dp)
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

	return p.facts(link), nil
}

// AllFacts returns the facts of the default configuration: the names that a requirement may have besides keys of the
// configuration, with their meanings.
func AllFacts() facts.Facts {
	all, err := Defaults().Facts(Link{})
	if err != nil { // the defaults are valid
		panic(err)
	}
	return all
}

func (p *Protocol) facts(link Link) (out facts.Facts) {
	config, learner, rounds := p.Config, p.Experiment.Method, p.Experiment.Plan.Rounds
	dp, private := methods.DPLayer(learner)
	sums, least := p.Aggregation != nil, 1 // uploads in a sum that the server sees
	if sums {
		least = p.Aggregation.Guarantees().Least
	}

	local, limited := methods.EpsilonLocal(learner, rounds)
	sampled, unsampled, server := math.Inf(1), math.Inf(1), math.Inf(1)
	switch {
	case link.Insecure:
		local = math.Inf(1)
	case private:
		sampled, unsampled = dp.Promised(p.Sampling(), rounds)
		server = dp.Against(p.Sampling(), rounds, least)
	}

	add := func(name string, value any, help string) {
		out = append(out, facts.Fact{Name: name, Value: value, Help: help})
	}

	add("method", config.Method, "the method")
	add("with", slices.Clone(config.With), "its wrappers, inner to outer")
	add("rounds", rounds, "number of rounds")
	add("clients", config.Partition.Clients, "number of clients")
	add("clients_per_round", p.Sampling().Size, "number of clients that train in a round, or on average")
	add("sampling", config.Sampling, "how the clients of a round are drawn: fixed or poisson")
	add("shares_examples", p.SharesExamples(), "the server learns a client's number of training examples")
	add("statistics", methods.StatisticNames(learner),
		"statistics rounds: what clients compute for the server from their data before they train")
	add("extras", p.extras(private),
		"what the server needs from a client beside the mean of parameters, in words")
	add("tests", config.Eval.Every,
		"rounds between tests; in each the server learns how well the client's own images are classified")
	add("tests.confusion", config.Eval.Confusion == everyone, "tests also send a confusion matrix, as counts")
	add("tls", link.TLS, "messages are encrypted, and server and clients authenticate with certificates")

	add("secure_aggregation", sums, "the server learns only sums of uploads")
	add("secure_aggregation.threshold", ifOn(sums, config.SecureAggregation.Threshold),
		"smallest share of its clients that a sum must hold")
	add("secure_aggregation.least", ifOn(sums, least), "smallest number of clients in any sum")
	add("secure_aggregation.bound", ifOn(sums, config.SecureAggregation.Clip), "how far a single client that lies can "+
		"move a number of the mean, as the sum shows no more than that it is possible")

	add("dp", private, "differential privacy of clients")
	add("dp.where", ifOn(private, dp.Where), "who clips and adds the noise: server or client")
	add("dp.clip", ifOn(private, dp.Clip), "C, largest norm of a client's update")
	add("dp.noise", ifOn(private, dp.Noise),
		"z, standard deviation of the noise on the sum of a round, divided by clip")
	add("dp.delta", ifOn(private, dp.Delta), "delta of the epsilons")
	add("dp.secret", ifOn(private, !link.Insecure),
		"noise comes from secrets of the side that adds it, not from the run's seed")
	add("dp.epsilon", ifOn(private, sampled),
		"epsilon after all rounds, against those who see the shared parameters but not who trained when")
	add("dp.epsilon_unsampled", ifOn(private, unsampled), "epsilon against those who know who trained when: with "+
		"secure aggregation the clients of a round know each other")
	add("dp.epsilon_local", ifOn(limited, local), "epsilon of a client that trains in every round, against those who "+
		"see what it keeps; infinite where its steps are not limited")
	add("dp.epsilon_server", ifOn(private, server), "epsilon against the server; infinite with where: server")
	return out
}

// ifOn returns the value of a protection that may be off.
func ifOn(on bool, value any) any {
	if on {
		return value
	}
	return nil
}

// extras returns what the server needs beside the mean of parameters; nil for nothing. With differential privacy there
// is nothing, since the method would have been refused.
func (p *Protocol) extras(private bool) any {
	_, beside, err := methods.AveragedUploads(p.Experiment.Method)
	switch {
	case private:
	case err != nil:
		return err.Error()
	case len(beside) > 0:
		return strings.Join(beside, ", ")
	}
	return nil
}
