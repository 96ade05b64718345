package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"promptfed/federation/methods"
	"promptfed/federation/secure"
)

// secured sets up secure aggregation where the configuration has it, and refuses methods that need more than a mean.
func (b *Built) secured() error {
	c := b.Config.SecureAggregation
	if !c.On() {
		return nil
	}
	weighting, beside, err := methods.Averages(b.Method)
	if err != nil {
		return fmt.Errorf("secure_aggregation: the server would get sums only: %w", err)
	}
	if asked := methods.StatisticNames(b.Method); len(asked) > 0 && c.Surveys != "clear" {
		return fmt.Errorf("secure_aggregation: clients answer the survey of %s, and the server would see each answer "+
			"as it is; set secure_aggregation.surveys: clear to let it, or leave the layer out", strings.Join(asked,
			", "))
	}
	if b.Config.Train.Centralised {
		return fmt.Errorf("secure_aggregation: train.centralised has one client, whose sum is its upload; leave one " +
			"of the two out")
	}
	if b.Config.Sampling == poisson {
		return errors.New("secure_aggregation: sampling: poisson draws any number of clients for a round, so that no " +
			"client can tell whether a sum has too few; set sampling: fixed")
	}
	clients := b.clients()
	p, n := b.Config.Participation, clients-b.Config.Eval.NewClients
	if p*float64(n) < 1.5 {
		return fmt.Errorf("secure_aggregation: a round has one of %d clients, whose sum is its upload; raise "+
			"participation, which is %v", n, p)
	}
	if b.layer, err = secure.New(c, weighting, beside, clients, int(b.sampling().Size)); err != nil {
		return err
	}
	agreed, err := json.Marshal(struct {
		secure.Config
		Weighting string
		Facts     secure.Facts
	}{c, weighting, b.layer.Facts()})
	b.Engine.Secure = string(agreed)
	return err
}

// JoinSecure makes Settings those of a client of a run elsewhere, under secure aggregation; without, it gives nil.
func (b *Built) JoinSecure(client int, p secure.Place) (*secure.Guard, error) {
	if b.layer == nil && secure.Took(p.Dir) {
		return nil, errors.New("the server has no secure aggregation any more, under which this client took part in " +
			"its " +
			"run; if that is right, take another --state")
	}
	if b.layer == nil {
		return nil, nil
	}
	p.Agreed = b.Engine.RunSpec().String()
	var err error
	b.guard, err = b.layer.GuardAt(client, p)
	return b.guard, err
}

// ServeSecure makes Settings those of a server whose clients are elsewhere.
func (b *Built) ServeSecure(p secure.Place) (err error) {
	if b.layer != nil {
		p.Agreed = b.Engine.RunSpec().String()
		b.around, err = b.layer.AroundAt(p)
	}
	return err
}
