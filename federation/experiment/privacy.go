package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/privacy/secure"
)

// openSecureAggregation sets up secure aggregation if the configuration has it, and refuses methods whose server needs
// more than a mean.
func (p *Protocol) openSecureAggregation() error {
	config := p.Config.SecureAggregation
	if !config.Enabled() {
		return nil
	}

	weighting, beside, err := methods.AveragedUploads(p.Experiment.Method)
	asked := methods.StatisticNames(p.Experiment.Method)
	share, n := p.Config.Participation, p.clients-p.Config.Eval.NewClients
	need := func(ok bool, format string, a ...any) error {
		return configtags.Need(ok, "secure_aggregation", format, a...)
	}
	if err := cmp.Or(need(err == nil, "the server gets only sums of uploads, but %w", err),
		need(len(asked) == 0 || config.Statistics == "clear", "clients answer the statistics %s, and the server would "+
			"see each single answer; set secure_aggregation.statistics: clear to allow it, or turn secure "+
			"aggregation off", strings.Join(asked, ", ")),
		need(!p.Config.Train.Centralised, "train.centralised has one client, so that a sum would be its upload; use "+
			"only one of the two"),
		need(p.Config.Sampling != poisson, "sampling: poisson draws any number of clients for a round, so that "+
			"clients cannot check how many are in a sum; set sampling: fixed"),
		need(share*float64(n) >= 1.5, "a round has one of %d clients, so that a sum would be its upload; raise "+
			"participation, which is %v", n, share)); err != nil {
		return err
	}

	if p.Aggregation, err = secure.New(config, weighting, beside, p.clients, int(p.Sampling().Size)); err != nil {
		return err
	}

	agreed, err := json.Marshal(struct {
		secure.Config
		Weighting  string
		Guarantees secure.Guarantees `json:"Facts"`
	}{config, weighting, p.Aggregation.Guarantees()})

	p.Experiment.Secure = string(agreed)
	return err
}

// Sampling returns how the clients of a round are drawn.
func (p *Protocol) Sampling() method.Sampling {
	plan := p.Experiment.Plan
	plan.Clients = p.clients
	return plan.Sampling()
}

// privacy returns the text of what epsilons assume, so that both sides of an experiment can compare it; empty without
// noise. It refuses noise from the seed where the method forbids it.
func (p *Protocol) privacy(seededNoise bool) (string, error) {
	m := p.Experiment.Method
	if dp, on := methods.DPLayer(m); seededNoise && on && dp.Secure {
		return "", errors.New("--insecure-dp draws noise from the seed, which the option secure of dp forbids; use " +
			"only one of the two")
	}

	if !methods.AddsNoise(m) {
		return "", nil
	}

	s := p.Sampling()
	text := fmt.Sprintf("%d rounds of %v of %d clients, sampling %s", p.Experiment.Plan.Rounds, s.Size, s.Clients,
		p.Config.Sampling)
	if seededNoise {
		text += ", noise from the seed"
	}

	return text, nil
}

// Private reports whether the method adds noise.
func (p *Protocol) Private() bool { return p.Experiment.Privacy != "" }

// SharesExamples reports whether a client tells the server its number of training examples. It does not if the server
// gets only sums, or if every client has the same weight for privacy.
func (p *Protocol) SharesExamples() bool {
	return p.Aggregation == nil && !methods.HidesClients(p.Experiment.Method)
}

// SampleCounts reports whether epsilon assumes a sample of clients that nobody else knows, if its noise is secret, and
// whether it assumes an unknown size of the sample too.
func (p *Protocol) SampleCounts() (sample, size bool) {
	s := p.Sampling()
	sample = methods.HidesClients(p.Experiment.Method) && s.Draws()
	return sample, sample && s.Poisson
}
