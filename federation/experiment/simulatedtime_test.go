package experiment

import (
	"context"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestSimulatedTimeRefused: settings that exclude simulated time are refused in one line before any computation.
func TestSimulatedTimeRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		words  []string
	}{
		{func(c *Config) { c.SimulatedTime.FedBuff.Buffer = 4 },
			[]string{"buffer: 4", "3 clients train at the same time"}},
		{func(c *Config) { c.SimulatedTime.FedBuff.Buffer, c.Participation = 2, 0.3 }, []string{"1 clients train"}},
		{func(c *Config) { c.SimulatedTime.FedBuff.Buffer, c.With = 2, []string{"scaffold"} }, []string{"fedbuff",
			"scaffold/dc"}},
		{func(c *Config) {
			c.Method, c.SimulatedTime.FedBuff.Buffer, c.SimulatedTime.FedBuff.Weights = "fedtpg", 2, "examples"
		}, []string{"simulated_time.fedbuff.weights", "fedtpg counts clients alike", "weighting to examples"}},
		{func(c *Config) { c.SimulatedTime.FedBuff.Buffer, c.Train.State = 2, sharedState },
			[]string{"train.optimizer_state: fresh"}},
		{func(c *Config) { c.SimulatedTime.FedBuff.Buffer, c.Sampling = 2, poisson }, []string{"sampling: fixed"}},
		{func(c *Config) { c.SecureAggregation.Threshold = 2 }, []string{"simulated_time", "secure aggregation"}},
		{func(c *Config) { c.SimulatedTime.Speeds, c.SimulatedTime.File = "file", "nowhere.csv" },
			[]string{"simulated_time.file", "nowhere.csv"}},
	} {
		conf := smallConfig("promptfl")
		conf.SimulatedTime.Speeds = "constant"
		c.change(&conf)
		_, err := Open(context.Background(), conf, nil)
		goldentest.WantError(t, err, c.words...)
	}
	conf := smallConfig("promptfl")
	conf.SimulatedTime.Speeds = "constant"
	_, err := OpenServer(conf, false)
	goldentest.WantError(t, err, "simulated_time.speeds", "take real time")
}
