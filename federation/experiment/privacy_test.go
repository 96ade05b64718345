package experiment

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestSampling: Poisson sampling needs a server that accepts a round without clients.
func TestSampling(t *testing.T) {
	c := smallConfig("promptfl")
	c.Sampling = "bernoulli"
	refuses(t, c, "sampling", "fixed or poisson")
	c.Sampling, c.Participation = poisson, 0.5
	refuses(t, c, "sampling: poisson may draw no client", "sampling: fixed")
	c.With, c.Options = []string{"dp"}, map[string]any{"dp": map[string]any{"noise": 0.0, "clip": 0.0}}
	refuses(t, c, "sampling: poisson may draw no client")
	c.Options, c.Train.Rounds = map[string]any{"tokens": 2, "noise": 2.0}, 6
	sizes := map[int]bool{}
	for _, r := range finish(t, open(t, c)).Records {
		sizes[len(r.Clients)] = true
		if !(r.Notes["epsilon_nominal"] > 0) {
			t.Errorf("round %d notes %v", r.Round, r.Notes)
		}
	}
	if len(sizes) < 2 {
		t.Errorf("all rounds had the sizes %v", sizes)
	}
}

// TestSecureAggregation: a section of the configuration is enough, the result is that of the plain run up to rounding,
// and methods without a sum are refused.
func TestSecureAggregation(t *testing.T) {
	c := smallConfig("promptfl")
	c.Train.Rounds, c.Options = 1, map[string]any{"tokens": 2}
	plain := finish(t, open(t, c))
	c.SecureAggregation.Threshold = 0.6
	b := open(t, c)
	sum := finish(t, b)
	worst := 0.0
	for i, v := range plain.Prompts["shared/ctx"].Data {
		worst = max(worst, math.Abs(float64(v-sum.Prompts["shared/ctx"].Data[i])))
	}
	if !(worst < 1e-7) || worst == 0 {
		t.Errorf("the prompts differ by %v", worst)
	}
	if plain.Records[0].BytesUp >= sum.Records[0].BytesUp || *plain.Records[0].Loss == *sum.Records[0].Loss {
		t.Errorf("%+v and %+v", plain.Records[0], sum.Records[0])
	}
	bare := open(t, smallConfig("promptfl"))
	if with, without := b.Experiment.Fingerprint(), bare.Experiment.Fingerprint(); with == without {
		t.Error("the fingerprint does not tell of secure aggregation")
	}
	c.SecureAggregation.Threshold = 0.4
	refuses(t, c, "secure_aggregation.threshold: 0.4", "above 0.5")
	c.SecureAggregation.Threshold = 0.6
	for words, change := range map[string]func(*Config){
		"fedproto needs every client's prototypes": func(c *Config) { c.With = []string{"fedproto"} },
		"robust needs each client's upload":        func(c *Config) { c.With = []string{"robust"} },
		"set where: client":                        func(c *Config) { c.With = []string{"dp"} },
		"the base method shares nothing":           func(c *Config) { c.Method = "coop" },
		"train.centralised has one client":         func(c *Config) { c.Train.Centralised = true },
		"raise participation, which is 0.4":        func(c *Config) { c.Participation = 0.4 },
		"a round has one of 1 clients":             func(c *Config) { c.Partition.Clients = 1 },
	} {
		bad := c
		change(&bad)
		refuses(t, bad, "secure_aggregation: ", words)
	}
	drawn := c
	drawn.Sampling, drawn.With, drawn.Options = poisson, []string{"dp"}, map[string]any{"where": "client", "noise": 0.5}
	refuses(t, drawn, "secure_aggregation: sampling: poisson draws any number", "sampling: fixed")
	c.With, c.Options = []string{"scaffold", "ggtpc"}, map[string]any{"min_count": 1}
	refuses(t, c, "the statistics ggtpc", "statistics: clear")
	c.SecureAggregation.Threshold = 0
	plain = finish(t, open(t, c))
	c.SecureAggregation.Threshold, c.SecureAggregation.Statistics = 0.6, "clear"
	sum = finish(t, open(t, c))
	for i, v := range plain.Prompts["shared/ctx"].Data {
		if d := math.Abs(float64(v - sum.Prompts["shared/ctx"].Data[i])); !(d < 1e-6) {
			t.Fatalf("with control variates and a statistic the prompts differ by %v", d)
		}
	}
	c.With, c.Options = []string{"dp"}, map[string]any{"where": "client", "noise": 0.5}
	if r := finish(t, open(t, c)); !(r.Records[0].Notes["epsilon_nominal"] > 0) {
		t.Errorf("%v", r.Records[0].Notes)
	}
}

// TestSharedOptimizerIsRefused: a shared optimizer is refused if its state would travel in messages or would break a
// promise of privacy.
func TestSharedOptimizerIsRefused(t *testing.T) {
	c := smallConfig("promptfl")
	c.Train.State = "shared"
	if b := open(t, c); !b.Experiment.Training.Shared {
		t.Error("train.optimizer_state does not reach the engine")
	}
	_, err := OpenServer(c, false)
	goldentest.WantError(t, err, "train.optimizer_state", "one process")
	private := c
	private.With, private.Options = []string{"dp"}, map[string]any{"noise": 1.0}
	refuses(t, private, "train.optimizer_state", "differential privacy")
	secret := c
	secret.SecureAggregation.Threshold = 0.7
	refuses(t, secret, "train.optimizer_state", "secure aggregation")
	c.Train.State = "kept"
	refuses(t, c, "train.optimizer_state", "fresh", "shared")
}
