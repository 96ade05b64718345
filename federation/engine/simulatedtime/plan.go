package simulatedtime

import (
	"fmt"
	"math"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

// Plan is a Config for the clients of an experiment.
type Plan struct {
	Speeds   []Speed // by client
	Deadline float64
	Count    bool // late uploads count
	FedBuff  FedBuff
	Seed     uint64
}

// Plan draws or reads the speeds of n clients; nil where there is no simulated time.
func (c Config) Plan(n int, seed uint64) (*Plan, error) {
	if !c.Enabled() {
		return nil, nil
	}
	speeds, err := c.speeds(n, seed)
	if err != nil {
		return nil, err
	}
	return &Plan{Speeds: speeds, Deadline: c.Deadline, Count: c.Late == count, FedBuff: c.FedBuff, Seed: seed}, nil
}

// seconds returns the time of a turn: the instruction, the steps one after another, and the upload.
func (p *Plan) seconds(client, steps, bytes int) float64 {
	s := p.Speeds[client]
	out := float64(steps) * s.Step
	if s.Bandwidth > 0 {
		out += float64(bytes) / s.Bandwidth
	}
	return out
}

// bytesOf returns the bytes of an instruction to a client and of an upload of its shared parameters.
func bytesOf(o message.Instruction, client int) int {
	up := message.Reply{Upload: method.Upload{Shared: o.Shared}}
	return message.EncodedSize(o.ForClient(client).Tensors()) + up.UploadSize()
}

// factor returns the factor of an update that is x steps of the server old (FedBuff, section 3; hinge as in FedAsync,
// Xie et al. 2019, section 5.2, with a = 10 and b = 4).
func (f FedBuff) factor(x int) float64 {
	switch {
	case f.Staleness == sqrt:
		return 1 / math.Sqrt(1+float64(x))
	case f.Staleness == hinge && x > 4:
		return 1 / (10*float64(x-4) + 1)
	}
	return 1
}

// Report is the simulated time of a round.
type Report struct {
	Seconds   float64 `json:"seconds"`             // since the start of the run, at the end of the round
	Late      []int   `json:"late,omitempty"`      // clients whose upload came after the deadline, or too stale
	Staleness []int   `json:"staleness,omitempty"` // of the uploads that counted, in the order of clients

	// of uploads that did not count
	Up   int `json:"-"`
	Down int `json:"-"`
}

// String returns the plan for errors and fingerprints.
func (p *Plan) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%+v", *p)
}
