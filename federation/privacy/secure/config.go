// Package secure runs secure aggregation in the rounds of an experiment, over any cohort: a Guard on the clients' side
// makes masked whole numbers of what a client uploads, and Wrap on the server's side gives the server one upload, the
// mean of all. The steps of package secagg travel as orders and answers like any other, so that nothing that carries
// messages has to know.
//
// A client's vector are the moves of its shared parameters, each clipped at Clip, rounded to a whole number of steps
// and multiplied by the client's weight; so are tensors that it uploads beside, one for each shared parameter; then its
// weight, its loss and how many numbers were clipped. So the server learns sums of these over the clients of a round,
// and who they are, but no upload, no number of examples and no loss of one client. The mean differs from that of the
// plain uploads by half a step at most, and by the rounding of float32.
//
// A client holds the server to its word: the number of clients and the least that a sum holds follow from the client's
// own configuration, each round has one session and one vector, also for a client that was started again, and what a
// client saw of each round is listed in its folder.
//
// Only methods whose server needs nothing but the mean can take part. What clients answer when they test is not
// aggregated.
package secure

import (
	"errors"
	"fmt"
	"math"

	"promptfed/federation/privacy/secagg"
)

// Config is the section secure_aggregation.
type Config struct {
	Threshold  float64 `config:"threshold"`
	Least      int     `config:"least"`
	Bits       int     `config:"bits" help:"bits of a rounded number, including its sign"`
	Clip       float64 `config:"clip" help:"largest change of a number in a round; larger ones are clipped"`
	ExtraClip  float64 `config:"extra_clip"`
	Statistics string  `config:"statistics"`
	Examples   int     `config:"examples" help:"most examples that a client is weighted by, where examples are weights"`
}

// LongHelp implements keys.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"threshold": "share of a round's clients (participation) that every sum must contain, above 0.5; 0: no " +
			"secure aggregation",
		"least": "after a round with an invalid sum, clients are split into groups with sums of at least so many " +
			"clients, until rounds succeed again; 0: such rounds are skipped",
		"extra_clip": "like clip, for what some methods upload beside the shared parameters, such as scaffold's " +
			"control variates",
		"statistics": "methods with statistics rounds, whose answers the server sees without masks: refuse, or clear " +
			"(allow them)",
	}
}

// Defaults are the settings of an experiment that does not name them. With 32 bits a step is 3e-8, below the rounding
// of float32 at numbers of 0.25 and more, and Clip leaves moves that no prompt makes that still learns; a number takes
// one byte more than with 24.
func Defaults() Config {
	return Config{Bits: 32, Clip: 64, ExtraClip: 1024, Statistics: "refuse", Examples: 1 << 16}
}

// On tells whether there is secure aggregation.
func (c Config) On() bool { return c.Threshold != 0 }

// Check finds what is wrong.
func (c Config) Check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("secure_aggregation."+format, a...)) }
	if c.On() && !(c.Threshold > 0.5 && c.Threshold <= 1) {
		bad("threshold: %v; it must be above 0.5 and at most 1, or 0 for no secure aggregation: with half of the "+
			"clients a server could ask two halves", c.Threshold)
	}
	if c.Least < 0 || c.Least == 1 {
		bad("least: %d; it must be 2 or more, or 0 for no groups: the sum of one client is its upload", c.Least)
	}
	if c.Bits < 8 || c.Bits > 32 {
		bad("bits: %d; it must lie between 8 and 32", c.Bits)
	}
	if !(c.Clip > 0 && c.Clip <= 1e6) {
		bad("clip: %v; it must be above 0 and at most 1e6", c.Clip)
	}
	if !(c.ExtraClip > 0 && c.ExtraClip <= 1e6) {
		bad("extra_clip: %v; it must be above 0 and at most 1e6", c.ExtraClip)
	}
	if c.Statistics != "" && c.Statistics != "refuse" && c.Statistics != "clear" {
		bad("statistics: %q; it must be refuse or clear", c.Statistics)
	}
	if c.Examples < 1 || c.Examples > 1<<24 {
		bad("examples: %d; it must lie between 1 and %d", c.Examples, 1<<24)
	}
	return errors.Join(errs...)
}

// Uniform and Examples are how clients may count.
const (
	Uniform  = "uniform"
	Examples = "examples"
)

// Layer is secure aggregation with settings that all parties share.
type Layer struct {
	c         Config
	weighting string
	extras    []string
	clients   int
	round     int
}

// New makes the layer for a method whose clients count in a way, and that uploads more under prefix/NAME for each
// shared parameter where beside has prefixes; clients is how many there are, of which a round has so many.
func New(c Config, weighting string, beside []string, clients, round int) (*Layer, error) {
	l := &Layer{c, weighting, beside, clients, round}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if !c.On() || weighting != Uniform && weighting != Examples {
		return nil, fmt.Errorf("secure aggregation with the threshold %v and clients that count %q", c.Threshold,
			weighting)
	}
	if clients < 2 || round < 2 || round > clients {
		return nil, fmt.Errorf("secure_aggregation: %d of %d clients in a round; there must be 2 or more, since the "+
			"sum of one is its upload", round, clients)
	}
	if c.On() && c.Least > 0 && round < 2*l.groupSize() {
		return nil, fmt.Errorf("secure_aggregation.least: %d; the %d clients of a round cannot be split into groups "+
			"of %d, of which a sum must hold the share %v; lower least, or set it to 0 for no groups", c.Least, round,
			l.groupSize(), c.Threshold)
	}
	_, err := l.ring()
	return l, err
}

// Facts are what a client knows of secure aggregation before it takes part, by its own configuration.
type Facts struct {
	Threshold float64 `json:"threshold"` // share of a round's clients
	Clients   int     `json:"clients"`   // that there are
	Round     int     `json:"round"`     // of them take part in a round
	Least     int     `json:"least"`     // are in any sum
	Whole     int     `json:"whole"`     // are in the sum of a round without groups
}

// Quorum is the share of a round's clients that its sum holds at least.
func (f Facts) Quorum() float64 { return float64(f.Whole) / float64(f.Round) }

// String is a part of a line.
func (f Facts) String() string {
	return fmt.Sprintf("sums of %d clients or more, of the %d that a round has and the %d that there are", f.Least,
		f.Round, f.Clients)
}

// Facts are those of the layer.
func (l *Layer) Facts() Facts {
	f := Facts{Threshold: l.c.Threshold, Clients: l.clients, Round: l.round, Least: l.threshold(), Whole: l.threshold()}
	if l.c.Least > 0 {
		f.Least = min(f.Least, l.c.Least)
	}
	return f
}

// maxWeight is the largest weight of a client.
func (l *Layer) maxWeight() int {
	if l.weighting == Uniform {
		return 1
	}
	return l.c.Examples
}

// ring holds the sums of all clients.
func (l *Layer) ring() (secagg.Ring, error) {
	most := float64(l.maxInteger()) * float64(l.maxWeight()) * float64(l.clients)
	if most >= math.MaxInt64 {
		return secagg.Ring{}, fmt.Errorf("secure_aggregation: sums of %d clients with %d examples do not fit 64 "+
			"bits; lower bits or examples", l.clients, l.maxWeight())
	}
	return secagg.Smallest(uint64(l.maxInteger()) * uint64(l.maxWeight()) * uint64(l.clients))
}

// threshold is how many clients the sum of a round must hold.
func (l *Layer) threshold() int { return l.thresholdOf(l.round) }

// thresholdOf is how many clients the sum of so many must hold: the configured share, and more than half of them,
// whoever is asked and answers. With half of them, two halves that have not given their shares yet could open two sums,
// and the difference of these could be one client's upload.
func (l *Layer) thresholdOf(clients int) int {
	return max(2, clients/2+1, int(math.Ceil(l.c.Threshold*float64(clients)-1e-9)))
}
