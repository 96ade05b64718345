package experiment

import (
	"errors"
	"fmt"

	"promptfed/federation/methods"
)

// checkSimulatedTime finds what simulated time and the rest of the configuration do not allow each other.
func (c Config) checkSimulatedTime() error {
	t := c.SimulatedTime
	errs := []error{t.Check()}
	if t.On() && c.SecureAggregation.On() {
		errs = append(errs, errors.New("simulated_time: secure aggregation needs the clients that began a round, whenever "+
			"they are done; leave one of the two out"))
	}
	if t.FedBuff.Buffer > 0 {
		if c.Sampling == poisson {
			errs = append(errs, errors.New("simulated_time.fedbuff: clients train all the time; set sampling: fixed"))
		}
		if c.Train.State == sharedState {
			errs = append(errs, errors.New("simulated_time.fedbuff: clients train side by side; set "+
				"train.optimizer_state: fresh"))
		}
	}
	return errors.Join(errs...)
}

// simulateTime gives the engine's experiment the speeds of its clients.
func (b *Built) simulateTime() error {
	c := b.Config
	if k := c.SimulatedTime.FedBuff.Buffer; k > 0 {
		if err := methods.Buffers(b.Method); err != nil {
			return fmt.Errorf("simulated_time.fedbuff: %w", err)
		}
		p := b.Engine.Plan
		p.Clients = c.Partition.Clients
		if n := int(p.Sampling().Size); k > n {
			return fmt.Errorf("simulated_time.fedbuff.buffer: %d uploads never come together where %d clients train side "+
				"by side; take %d or fewer, or a larger participation", k, n, n)
		}
	}
	var err error
	b.Engine.SimulatedTime, err = c.SimulatedTime.Plan(c.Partition.Clients, c.Seed)
	return err
}
