package experiment

import (
	"cmp"
	"encoding/json"
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
	clients := cmp.Or(b.of, len(b.Parts), b.Config.Partition.Clients)
	if b.layer, err = secure.New(c, weighting, beside, clients); err != nil {
		return err
	}
	if p, n := b.Config.Participation, clients-b.Config.Eval.NewClients; p*float64(n) < 1.5 {
		return fmt.Errorf("secure_aggregation: a round has one of %d clients, whose sum is its upload; raise "+
			"participation, which is %v", n, p)
	}
	agreed, err := json.Marshal(struct {
		secure.Config
		Weighting string
	}{c, weighting})
	b.Engine.Secure = string(agreed)
	return err
}
