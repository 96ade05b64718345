package simulatedtime

import (
	"context"

	"promptfed/federation/engine/message"
)

// Cohort is a message.Cohort whose clients' turns take simulated time.
type Cohort struct {
	message.Cohort
	plan   *Plan
	report Report
	buffer *fedBuff // nil for synchronous rounds
}

// New returns a cohort in simulated time around another one. trainers are the clients that may train, atATime how many
// of them train at the same time, and steps returns how many steps a client takes in a turn; FedBuff needs steps for
// the order of uploads.
func New(of message.Cohort, p *Plan, trainers []int, atATime int, steps func(client int) int) *Cohort {
	c := &Cohort{Cohort: of, plan: p}
	if p.FedBuff.Buffer > 0 {
		c.buffer = &fedBuff{plan: p, trainers: trainers, atATime: min(atATime, len(trainers)), steps: steps}
	}
	return c
}

// Report returns the simulated time of the last round.
func (c *Cohort) Report() Report { return c.report }

// Run executes an instruction and counts its time. Tests take no time, and statistics the time of their messages.
func (c *Cohort) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	switch {
	case o.Kind.Tests():
		return c.Cohort.Run(ctx, o)
	case o.Kind == message.Train && c.buffer != nil:
		return c.buffer.run(ctx, c.Cohort, o, &c.report)
	}
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	var came []message.Reply
	longest := 0.0
	now := Report{Seconds: c.report.Seconds}
	for _, r := range replies {
		took := c.plan.seconds(r.Client, r.Stats.Steps, r.Up+r.Down)
		if o.Kind == message.Train && c.plan.Deadline > 0 && took > c.plan.Deadline {
			now.Late = append(now.Late, r.Client)
			if !c.plan.Count {
				now.Up, now.Down, took = now.Up+r.Up, now.Down+r.Down, c.plan.Deadline
				longest = max(longest, took)
				continue
			}
		}
		longest = max(longest, took)
		came = append(came, r)
	}
	now.Seconds += longest
	c.report = now
	return came, nil
}

// Accept keeps the states of clients. A client of FedBuff keeps its state from the end of its training, also if its
// upload does not count.
func (c *Cohort) Accept(round int, clients []int) error {
	if c.buffer != nil {
		clients = c.buffer.trained
	}
	return c.Cohort.Accept(round, clients)
}
