package simulatedtime

import (
	"encoding/csv"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
)

// Config is the section simulated_time: how fast each client computes and sends, and what the server does with late
// uploads. No program waits for this time.
type Config struct {
	Speeds    string  `config:"speeds" in:"none|constant|lognormal|uniform|file"`
	File      string  `config:"file" help:"for speeds: file: CSV with columns client, step_seconds, bandwidth"`
	Step      float64 `config:"step_seconds" help:"seconds that a training step takes, median over clients"`
	Spread    float64 `config:"spread" in:"0..1e18"`
	Bandwidth float64 `config:"bandwidth" in:"0..1e18"`
	Deadline  float64 `config:"deadline" in:"0..1e18" help:"most simulated seconds of a round; 0: no limit"`
	Late      string  `config:"late" in:"drop|count"`
	FedBuff   FedBuff `config:"fedbuff"`
}

func (Config) LongHelp() map[string]string {
	return map[string]string{
		"bandwidth": "bytes per second of a client's link; 0: messages take no time",
		"speeds": "distribution of the clients' speeds, drawn once from the seed: none (no simulated time), " +
			"constant, lognormal, uniform, or file",
		"spread": "lognormal: standard deviation of the logarithm of seconds; uniform: 0.5 means from half to one " +
			"and a half times step_seconds",
		"late": "uploads after the deadline: drop (the round ends without them) or count (the round waits for them)",
	}
}

// FedBuff is the section simulated_time.fedbuff: asynchronous rounds that merge a buffer of uploads, weighted by their
// staleness (Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022).
type FedBuff struct {
	Buffer       int    `config:"buffer" in:"0.."`
	Staleness    string `config:"staleness" in:"sqrt|constant|hinge"`
	MaxStaleness int    `config:"max_staleness" in:"0.." help:"older updates are dropped; 0 drops none"`
	Weights      string `config:"weights" in:"uniform|examples"`
}

func (FedBuff) LongHelp() map[string]string {
	return map[string]string{
		"buffer": "uploads per server step, which is then called a round; clients train all the time, the share " +
			"participation of them at once; 0: synchronous rounds",
		"staleness": "weight of an update that is x server steps old: sqrt (1/sqrt(1+x)), constant (1) or hinge (1 " +
			"up to 4 steps, then 1/(10(x-4)+1))",
		"weights": "weights of buffered updates: uniform, or examples",
	}
}

const (
	None      = "none" // the Speeds of a run without simulated time
	constant  = "constant"
	lognormal = "lognormal"
	uniform   = "uniform"
	fromFile  = "file"
	drop      = "drop"
	count     = "count"
	sqrt      = "sqrt"
	hinge     = "hinge"
	examples  = "examples"
)

// Defaults returns the values that a file or a flag changes.
func Defaults() Config {
	return Config{Speeds: None, Step: 1, Spread: 0.5, Late: drop, FedBuff: FedBuff{Staleness: sqrt, Weights: uniform}}
}

// Enabled reports whether a run has simulated time.
func (c Config) Enabled() bool { return c.Speeds != None }

// Check returns an error for values that cannot be used; it opens no files.
func (c Config) Check() error {
	const section = "simulated_time."
	errs := []error{configtags.Check(section, c), configtags.Check(section+"fedbuff.", c.FedBuff)}
	bad := func(key, format string, a ...any) {
		errs = append(errs, configtags.KeyErrorf(section+key, format, a...))
	}

	switch {
	case !(c.Step > 0 && c.Step <= 1e12):
		bad("step_seconds", "%v; it must be above 0, at most 1e12", c.Step)
	case c.Speeds == uniform && c.Spread >= 1:
		bad("spread", "%v; it must be below 1 with speeds: uniform", c.Spread)
	case c.Speeds == lognormal && c.Spread > 10: // seconds would leave the range of numbers
		bad("spread", "%v; it must be at most 10 with speeds: lognormal", c.Spread)
	case (c.Speeds == fromFile) != (c.File != ""):
		bad("file", "it belongs to speeds: file; set both or neither")
	case !c.Enabled() && (c.Deadline > 0 || c.FedBuff.Buffer > 0):
		bad("speeds", "none simulates no time; deadlines and FedBuff need lognormal, uniform, constant or file")
	case c.Deadline > 0 && c.FedBuff.Buffer > 0:
		bad("deadline", "FedBuff has no rounds that could end; set only one of the two")
	}

	return errors.Join(errs...)
}

// Speed is the speed of training and communication of a client.
type Speed struct {
	Step      float64 // seconds of a training step
	Bandwidth float64 // bytes a second, both ways; 0: messages take no time
}

// speeds draws or reads the speeds of n clients.
func (c Config) speeds(n int, seed uint64) ([]Speed, error) {
	if c.Speeds == fromFile {
		return readSpeeds(c.File, n)
	}

	out := make([]Speed, n)
	for i := range out {
		r := method.Rand(seed, "speed", strconv.Itoa(i))
		out[i] = Speed{c.Step, c.Bandwidth}
		switch c.Speeds {
		case lognormal:
			out[i].Step *= math.Exp(c.Spread * r.NormFloat64())
		case uniform:
			out[i].Step *= 1 + c.Spread*(2*r.Float64()-1)
		}
	}

	return out, nil
}

// readSpeeds reads a line "client,step_seconds,bandwidth" for each of n clients.
func readSpeeds(path string, n int) ([]Speed, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, configtags.KeyErrorf("simulated_time.file", "%w", err)
	}
	defer f.Close()

	rows, err := csv.NewReader(transform.NewReader(f, unicode.BOMOverride(transform.Nop))).ReadAll()
	if err != nil {
		return nil, configtags.KeyErrorf("simulated_time.file", "%s: %w", path, err)
	}

	head := []string{"client", "step_seconds", "bandwidth"}
	if len(rows) == 0 || !slices.Equal(rows[0], head) {
		return nil, configtags.KeyErrorf("simulated_time.file", "%s: its first line must be %s", path,
			strings.Join(head, ","))
	}

	out := make([]Speed, n)
	for i, row := range rows[1:] {
		id, err := strconv.Atoi(row[0])
		step, err2 := strconv.ParseFloat(row[1], 64)
		width, err3 := strconv.ParseFloat(row[2], 64)
		if errors.Join(err, err2, err3) != nil || id < 0 || !(step > 0) || !(width >= 0) || math.IsInf(step+width, 0) {
			return nil, configtags.KeyErrorf("simulated_time.file", "%s: line %d: expected a client number from 0, "+
				"seconds above 0 and bytes per second of at least 0", path, i+2)
		}

		if id >= n {
			continue // the file is for a larger federation
		}

		if out[id].Step > 0 {
			return nil, configtags.KeyErrorf("simulated_time.file", "%s: line %d: client %d is listed twice", path, i+2,
				id)
		}

		out[id] = Speed{step, width}
	}

	for id, s := range out {
		if s.Step == 0 {
			return nil, configtags.KeyErrorf("simulated_time.file", "%s has no line for client %d of %d", path, id, n)
		}
	}

	return out, nil
}
