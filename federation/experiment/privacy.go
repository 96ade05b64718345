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
func (b *Built) openSecureAggregation() error {
	c := b.Config.SecureAggregation
	if !c.Enabled() {
		return nil
	}
	weighting, beside, err := methods.AveragedUploads(b.Method)
	asked := methods.StatisticNames(b.Method)
	clients := b.clients()
	p, n := b.Config.Participation, clients-b.Config.Eval.NewClients
	switch {
	case err != nil:
		return configtags.KeyErrorf("secure_aggregation", "the server gets only sums of uploads, but %w", err)
	case len(asked) > 0 && c.Statistics != "clear":
		return configtags.KeyErrorf("secure_aggregation", "clients answer the statistics %s, and the server would "+
			"see each single answer; set secure_aggregation.statistics: clear to allow it, or turn secure "+
			"aggregation off", strings.Join(asked, ", "))
	case b.Config.Train.Centralised:
		return configtags.KeyErrorf("secure_aggregation", "train.centralised has one client, so that a sum would be "+
			"its upload; use only one of the two")
	case b.Config.Sampling == poisson:
		return configtags.KeyErrorf("secure_aggregation", "sampling: poisson draws any number of clients for a "+
			"round, so that clients cannot check how many are in a sum; set sampling: fixed")
	case p*float64(n) < 1.5:
		return configtags.KeyErrorf("secure_aggregation", "a round has one of %d clients, so that a sum would be its "+
			"upload; raise participation, which is %v", n, p)
	}
	if b.aggregation, err = secure.New(c, weighting, beside, clients, int(b.sampling().Size)); err != nil {
		return err
	}
	agreed, err := json.Marshal(struct {
		secure.Config
		Weighting  string
		Guarantees secure.Guarantees `json:"Facts"`
	}{c, weighting, b.aggregation.Guarantees()})
	b.Engine.Secure = string(agreed)
	return err
}

// JoinSecure makes Settings those of a client of a run elsewhere, under secure aggregation; without secure aggregation
// it returns nil.
func (b *Built) JoinSecure(client int, p secure.Side) (*secure.Guard, error) {
	if b.aggregation == nil {
		if secure.HasJoined(p.Dir) {
			return nil, errors.New("the server has turned off secure aggregation, under which this client took part " +
				"in its run; if that is intended, use another --state")
		}
		return nil, nil
	}
	p.Agreed = b.Engine.RunSpec().String()
	var err error
	b.guard, err = b.aggregation.GuardAt(client, p)
	return b.guard, err
}

// ServeSecure makes Settings those of a server whose clients are on other machines.
func (b *Built) ServeSecure(p secure.Side) (err error) {
	if b.aggregation != nil {
		p.Agreed = b.Engine.RunSpec().String()
		b.wrap, err = b.aggregation.WrapAt(p)
	}
	return err
}

// SecureQuorum returns the share of the clients of a round that must answer for a sum; 0 without secure aggregation. A
// server that waited for fewer would skip rounds in which clients are only away.
func (b *Built) SecureQuorum() float64 {
	if b.aggregation == nil {
		return 0
	}
	return b.aggregation.Guarantees().Quorum()
}

func (b *Built) clients() int { return cmp.Or(b.of, len(b.Parts), b.Config.Partition.Clients) }

func (b *Built) sampling() method.Sampling {
	p := b.Engine.Plan
	p.Clients = b.clients()
	return p.Sampling()
}

// describePrivacy sets the text of what epsilons assume, if there is noise, so that both sides of an experiment can
// compare it.
func (b *Built) describePrivacy() {
	if methods.AddsNoise(b.Method) {
		s := b.sampling()
		b.Engine.Privacy = fmt.Sprintf("%d rounds of %v of %d clients, sampling %s", b.Engine.Plan.Rounds, s.Size,
			s.Clients, b.Config.Sampling)
	}
}

func (b *Built) Private() bool { return b.Engine.Privacy != "" }

// InsecureDP draws the noise of differential privacy from the run's seed also across machines. Both sides must agree to
// it.
func (b *Built) InsecureDP() error {
	if dp, on := methods.DPLayer(b.Method); on && dp.Secure {
		return errors.New("--insecure-dp draws noise from the seed, which the option secure of dp forbids; use only " +
			"one of the two")
	} else if b.Private() {
		b.Engine.Privacy += ", noise from the seed"
	}
	return nil
}

// SharesExamples reports whether a client tells the server its number of training examples. It does not if the server
// gets only sums, or if every client has the same weight for privacy.
func (b *Built) SharesExamples() bool { return b.aggregation == nil && !methods.HidesClients(b.Method) }

// SampleCounts reports whether epsilon assumes a sample of clients that nobody else knows, if its noise is secret, and
// whether it assumes an unknown size of the sample too.
func (b *Built) SampleCounts() (sample, size bool) {
	s := b.sampling()
	sample = methods.HidesClients(b.Method) && s.Draws()
	return sample, sample && s.Poisson
}
