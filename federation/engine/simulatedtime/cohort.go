package simulatedtime

import (
	"context"
	"fmt"
	"math"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

// Cohort is a message.Cohort whose clients' turns take simulated time.
type Cohort struct {
	message.Cohort
	plan   *Plan
	now    float64        // seconds since the start of the run
	report message.Report // of the round
	buffer *fedBuff       // nil for synchronous rounds
}

// New returns a cohort in simulated time around another one. trainers are the clients that may train, atATime how many
// of them train at the same time, and steps returns how many steps a client takes in a turn; FedBuff needs steps for
// the order of uploads.
func New(inner message.Cohort, p *Plan, trainers []int, atATime int, steps func(client int) int) *Cohort {
	c := &Cohort{Cohort: inner, plan: p}
	if p.FedBuff.Buffer > 0 {
		c.buffer = &fedBuff{plan: p, trainers: trainers, atATime: min(atATime, len(trainers)), steps: steps}
	}
	return c
}

// Report adds the simulated time of the round.
func (c *Cohort) Report() message.Report {
	out := c.report
	out.LimitedClients = c.Cohort.Report().LimitedClients
	c.report = message.Report{}
	return out
}

// Run executes an instruction and counts its time. Tests take no time, and statistics the time of their messages.
func (c *Cohort) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	switch {
	case instruction.Kind.Tests():
		return c.Cohort.Run(ctx, instruction)
	case instruction.Kind == message.Train && c.buffer != nil:
		replies, report, err := c.buffer.run(ctx, c.Cohort, instruction, c.now)
		if err == nil {
			c.took(report)
		}
		return replies, err
	}

	replies, err := c.Cohort.Run(ctx, instruction)
	if err != nil {
		return nil, err
	}

	var came []message.Reply
	longest := 0.0
	now := message.Report{Simulated: &message.SimulatedTime{}}
	for _, reply := range replies {
		took := c.plan.seconds(reply.Client, reply.Stats.Steps, reply.Up+reply.Down)
		if instruction.Kind == message.Train && c.plan.Deadline > 0 && took > c.plan.Deadline {
			now.Simulated.Late = append(now.Simulated.Late, reply.Client)
			if !c.plan.Count {
				now.Up, now.Down, took = now.Up+reply.Up, now.Down+reply.Down, c.plan.Deadline
				longest = max(longest, took)
				continue
			}
		}
		longest = max(longest, took)
		came = append(came, reply)
	}

	now.Simulated.Seconds = c.now + longest
	c.took(now)
	return came, nil
}

func (c *Cohort) took(report message.Report) { c.report, c.now = report, report.Simulated.Seconds }

// Accept keeps the states of clients. A client of FedBuff keeps its state from the end of its training, also if its
// upload does not count.
func (c *Cohort) Accept(round int, clients []int) error {
	if c.buffer != nil {
		clients = c.buffer.trained
	}
	return c.Cohort.Accept(round, clients)
}

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
func bytesOf(instruction message.Instruction, client int) int {
	up := message.Reply{Upload: method.Upload{Shared: instruction.Shared}}
	return message.EncodedSize(instruction.ForClient(client).Tensors()) + up.UploadSize()
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

// String returns the plan for errors and fingerprints.
func (p *Plan) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%+v", *p)
}
