package experiment

import (
	"cmp"
	"errors"
	"fmt"

	"promptfed/federation/method"
	"promptfed/federation/methods"
)

// clients is how many there are of the experiment.
func (b *Built) clients() int { return cmp.Or(b.of, len(b.Parts), b.Config.Partition.Clients) }

// sampling is who trains in a round.
func (b *Built) sampling() method.Sampling {
	p := b.Engine.Plan
	p.Clients = b.clients()
	return p.Sampling()
}

// private tells the two sides of an experiment what epsilons reckon with, where there is differential privacy.
func (b *Built) private() {
	if _, on := methods.Private(b.Method); on {
		s := b.sampling()
		b.Engine.Privacy = fmt.Sprintf("%d rounds of %v of %d clients, sampling %s", b.Engine.Plan.Rounds, s.Size, s.Of,
			b.Config.Sampling)
	}
}

// Private tells whether there is differential privacy.
func (b *Built) Private() bool { return b.Engine.Privacy != "" }

// InsecureDP has the noise of differential privacy come from the run's seed also across machines. Both sides must agree
// to it.
func (b *Built) InsecureDP() error {
	if dp, on := methods.Private(b.Method); on && dp.Secure {
		return errors.New("--insecure-dp draws noise from the seed, which the option secure of dp rules out; leave " +
			"one of the two out")
	} else if on {
		b.Engine.Privacy += ", noise from the seed"
	}
	return nil
}
