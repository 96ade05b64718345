package simulatedtime

import (
	"context"

	"promptfed/federation/engine/message"
)

// Cohort is clients whose turns take simulated time.
type Cohort struct {
	message.Cohort
	plan   *Plan
	report Report
	buffer *fedBuff // nil for synchronous rounds
}

// New puts simulated time between the server and clients. trainers are those that may train, atATime how many of them
// do side by side, and steps how many steps a client takes in a turn; FedBuff needs them to know who comes next.
func New(of message.Cohort, p *Plan, trainers []int, atATime int, steps func(client int) int) *Cohort {
	c := &Cohort{Cohort: of, plan: p}
	if p.FedBuff.Buffer > 0 {
		c.buffer = &fedBuff{plan: p, trainers: trainers, atATime: min(atATime, len(trainers)), steps: steps}
	}
	return c
}

// Report is the simulated time of the round that was run last.
func (c *Cohort) Report() Report { return c.report }

// Run executes an instruction, and counts the time that it takes. Tests take none, and statistics what their messages
// take.
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

// Accept lets clients keep their states. A client of FedBuff keeps its own from the end of its training on, whatever
// becomes of its upload.
func (c *Cohort) Accept(round int, clients []int) error {
	if c.buffer != nil {
		clients = c.buffer.trained
	}
	return c.Cohort.Accept(round, clients)
}
