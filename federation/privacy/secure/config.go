package secure

import (
	"errors"
	"fmt"
	"math"

	"promptfed/federation/configtags"
	"promptfed/federation/privacy/secagg"
)

// Config holds the section "secure_aggregation" of a configuration.
type Config struct {
	Threshold  float64 `config:"threshold"`
	Least      int     `config:"least"`
	Bits       int     `config:"bits" in:"8..32" help:"bits of a rounded number, including its sign"`
	Clip       float64 `config:"clip" in:"0<..1e6"`
	ExtraClip  float64 `config:"extra_clip" in:"0<..1e6"`
	Statistics string  `config:"statistics"`
	Examples   int     `config:"examples" in:"1..16777216"`
}

// LongHelp implements configtags.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"threshold": "share of a round's clients (participation) that every sum must contain, above 0.5; 0: no " +
			"secure aggregation",
		"least": "after a round with an invalid sum, clients are split into groups with sums of at least so many " +
			"clients, until rounds succeed again; 0: such rounds are skipped",
		"examples":   "largest weight of a client, if clients are weighted by examples",
		"clip":       "largest change of a number in a round; larger ones are clipped",
		"extra_clip": "like clip, for extra uploads of some methods, such as scaffold's control variates",
		"statistics": "methods with statistics rounds, whose answers are not masked: refuse, or clear (allow them)",
	}
}

// Defaults returns the default settings. With 32 bits a step is 3e-8, below the rounding of float32 at numbers from
// 0.25, and Clip exceeds every change of a prompt that still learns. A number takes one byte more than with 24 bits.
func Defaults() Config {
	return Config{Bits: 32, Clip: 64, ExtraClip: 1024, Statistics: "refuse", Examples: 1 << 16}
}

// Enabled reports whether secure aggregation is on.
func (c Config) Enabled() bool { return c.Threshold != 0 }

// Check reports invalid settings.
func (c Config) Check() error {
	errs := []error{configtags.Check("secure_aggregation.", c)}
	bad := func(key, format string, a ...any) { errs = append(errs, configtags.KeyErrorf(key, format, a...)) }
	if c.Enabled() && !(c.Threshold > 0.5 && c.Threshold <= 1) {
		bad("secure_aggregation.threshold", "%v; it must be above 0.5 and at most 1, or 0 for no secure aggregation: "+
			"with half of the clients a server could open the sums of two halves", c.Threshold)
	}

	if c.Least < 0 || c.Least == 1 {
		bad("secure_aggregation.least", "%d; it must be 2 or more, or 0 for no groups: the sum of one client is its "+
			"upload", c.Least)
	}

	if c.Statistics != "" && c.Statistics != "refuse" && c.Statistics != "clear" {
		bad("secure_aggregation.statistics", "%q; it must be refuse or clear", c.Statistics)
	}

	return errors.Join(errs...)
}

// Uniform and Examples are the weightings of clients.
const (
	Uniform  = "uniform"
	Examples = "examples"
)

// Aggregation is secure aggregation with the settings that all sides share.
type Aggregation struct {
	config    Config
	weighting string
	extras    []string
	clients   int
	round     int
	ring      secagg.Ring // holds the sums of all clients
}

// New returns the aggregation of a method with a weighting of its clients. extras are the prefixes of further uploads,
// each with one tensor prefix/NAME for each shared parameter. clients is the number of clients, round how many of them
// a round has.
func New(config Config, weighting string, extras []string, clients, round int) (*Aggregation, error) {
	aggregation := &Aggregation{config: config, weighting: weighting, extras: extras, clients: clients, round: round}
	if err := config.Check(); err != nil {
		return nil, err
	}

	if !config.Enabled() || weighting != Uniform && weighting != Examples {
		return nil, fmt.Errorf("secure aggregation with the threshold %v and clients that count %q", config.Threshold,
			weighting)
	}

	if clients < 2 || round < 2 || round > clients {
		return nil, configtags.KeyErrorf("secure_aggregation", "%d of %d clients in a round; there must be 2 or "+
			"more, since the sum of one is its upload", round, clients)
	}

	if config.Least > 0 && round < 2*aggregation.groupSize() {
		return nil, configtags.KeyErrorf("secure_aggregation.least", "%d; the %d clients of a round cannot be split "+
			"into groups of %d, of which a sum must hold the share %v; lower least, or set it to 0 for no groups",
			config.Least, round, aggregation.groupSize(), config.Threshold)
	}

	var err error
	aggregation.ring, err = aggregation.smallestRing()
	return aggregation, err
}

// Guarantees are what a client's own configuration ensures before the client takes part.
type Guarantees struct {
	Threshold float64 `json:"threshold"` // share of a round's clients
	Clients   int     `json:"clients"`   // clients in the run
	Round     int     `json:"round"`     // clients in a round
	Least     int     `json:"least"`     // minimum number of clients in any sum
	Whole     int     `json:"whole"`     // minimum number of clients in the sum of a round without groups
}

// Quorum returns the minimum share of a round's clients in its sum.
func (g Guarantees) Quorum() float64 { return float64(g.Whole) / float64(g.Round) }

// String returns a phrase for a message.
func (g Guarantees) String() string {
	return fmt.Sprintf("sums of %d clients or more, with %d clients in a round and %d in the run", g.Least,
		g.Round, g.Clients)
}

// Guarantees returns the guarantees of the aggregation.
func (l *Aggregation) Guarantees() Guarantees {
	g := Guarantees{Threshold: l.config.Threshold, Clients: l.clients, Round: l.round, Least: l.threshold(),
		Whole: l.threshold()}
	if l.config.Least > 0 {
		g.Least = min(g.Least, l.config.Least)
	}
	return g
}

// maxWeight returns the largest weight of a client.
func (l *Aggregation) maxWeight() int {
	if l.weighting == Uniform {
		return 1
	}
	return l.config.Examples
}

// smallestRing returns the smallest ring that holds the sums of all clients.
func (l *Aggregation) smallestRing() (secagg.Ring, error) {
	most := float64(l.maxInteger()) * float64(l.maxWeight()) * float64(l.clients)
	if most >= math.MaxInt64 {
		return secagg.Ring{}, configtags.KeyErrorf("secure_aggregation", "sums of %d clients with %d examples do not "+
			"fit 64 bits; lower bits or examples", l.clients, l.maxWeight())
	}
	return secagg.SmallestRing(uint64(l.maxInteger()) * uint64(l.maxWeight()) * uint64(l.clients))
}

// threshold returns the minimum number of clients in the sum of a round.
func (l *Aggregation) threshold() int { return l.thresholdOf(l.round) }

// thresholdOf returns the minimum number of clients in a sum over at most so many clients: the configured share, and
// more than half. With half of them, two disjoint halves could open two sums, whose difference could be one client's
// upload.
func (l *Aggregation) thresholdOf(clients int) int {
	return max(2, clients/2+1, int(math.Ceil(l.config.Threshold*float64(clients)-1e-9)))
}
