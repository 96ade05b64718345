package simulatedtime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// fedBuff runs clients without rounds. As many clients as allowed train at the same time, each from the shared
// parameters at its start. An arriving upload goes into the buffer, and an idle client starts. The server merges a full
// buffer, which is one step of the server. A client starts at most once from one state of the server, and has at most
// one upload in a buffer: if no other client is idle, its place stays empty until the next step.
//
// Clients that started from one state of the server train together once the uploads of its step are known. They are
// known when the times of all turns are, which follow from steps and sizes. Turns may therefore be computed by any
// number of workers with the same results.
type fedBuff struct {
	plan     *Plan
	trainers []int
	atATime  int
	steps    func(client int) int
	trained  []int // in the present step

	starts  int // clients that were drawn so far
	flights []*flight
}

// flight is a client's turn from its start to the arrival of its upload.
type flight struct {
	Client  int     `json:"client"`
	Version int     `json:"version"` // of the server when it started
	End     float64 `json:"end"`     // when the upload arrives
	Reply   *reply  `json:"reply"`   // nil before it was computed
	update  tensor.Map
}

// reply is the part of a reply that is no tensor.
type reply struct {
	N     int           `json:"n"`
	Stats message.Stats `json:"stats"`
	Up    int           `json:"up"`
	Down  int           `json:"down"`
}

// run runs one step of the server, which begins at the time began.
func (b *fedBuff) run(ctx context.Context, inner message.Cohort, instruction message.Instruction,
	began float64) ([]message.Reply, message.Report, error) {
	now := message.SimulatedTime{Seconds: began}
	if instruction.Round == 0 {
		for _, id := range instruction.Clients {
			b.start(id, instruction, now.Seconds)
		}
	}

	b.fill(instruction, now.Seconds, nil)
	var full, stale []*flight
	for len(full) < b.plan.FedBuff.Buffer && len(b.flights) > 0 {
		f := b.next()
		now.Seconds = f.End
		if most := b.plan.FedBuff.MaxStaleness; most > 0 && instruction.Round-f.Version > most {
			stale = append(stale, f)
			now.Late = append(now.Late, f.Client)
		} else {
			full = append(full, f)
		}
		if len(full) < b.plan.FedBuff.Buffer {
			b.fill(instruction, now.Seconds, full)
		}
	}

	if err := b.train(ctx, inner, instruction, slices.Concat(b.flights, full, stale)); err != nil {
		return nil, message.Report{}, err
	}

	var out []message.Reply
	report := message.Report{Simulated: &now}
	for _, f := range stale {
		report.Up, report.Down = report.Up+f.Reply.Up, report.Down+f.Reply.Down
	}

	slices.SortFunc(full, func(a, b *flight) int { return a.Client - b.Client })
	for _, f := range full {
		out = append(out, b.counted(f, instruction))
		now.Staleness = append(now.Staleness, instruction.Round-f.Version)
	}

	return out, report, nil
}

// fill starts idle clients until as many train as allowed. Clients in the buffer, and clients that started from the
// present state of the server before, wait for the next state.
func (b *fedBuff) fill(instruction message.Instruction, now float64, buffer []*flight) {
	for len(b.flights) < b.atATime {
		idle := slices.DeleteFunc(slices.Clone(b.trainers), func(id int) bool {
			own := func(f *flight) bool { return f.Client == id }
			return slices.ContainsFunc(b.flights, own) || slices.ContainsFunc(buffer, own)
		})
		if len(idle) == 0 {
			return
		}
		r := method.Rand(b.plan.Seed, "fedbuff", strconv.Itoa(b.starts))
		b.start(idle[r.IntN(len(idle))], instruction, now)
	}
}

func (b *fedBuff) start(client int, instruction message.Instruction, now float64) {
	b.starts++
	b.flights = append(b.flights, &flight{Client: client, Version: instruction.Round,
		End: now + b.plan.seconds(client, b.steps(client), bytesOf(instruction, client))})
}

// next removes and returns the turn whose upload arrives first; of equal ones, that of the lowest client.
func (b *fedBuff) next() *flight {
	first := slices.MinFunc(b.flights, func(a, b *flight) int {
		return cmp.Or(cmp.Compare(a.End, b.End), a.Client-b.Client)
	})
	b.flights = slices.DeleteFunc(b.flights, func(f *flight) bool { return f == first })
	return first
}

// train computes the turns that began from the present state of the server.
func (b *fedBuff) train(ctx context.Context, inner message.Cohort, instruction message.Instruction,
	flights []*flight) error {
	begun := map[int]*flight{}
	instruction.Clients = nil
	for _, f := range flights {
		if f.Reply == nil {
			begun[f.Client] = f
			instruction.Clients = append(instruction.Clients, f.Client)
		}
	}

	slices.Sort(instruction.Clients)
	b.trained = instruction.Clients
	if len(instruction.Clients) == 0 {
		return nil
	}

	replies, err := inner.Run(ctx, instruction)
	if err != nil {
		return err
	}

	for _, r := range replies {
		f := begun[r.Client]
		if err := message.CheckUpload(instruction.Shared, r.Upload); err != nil {
			return fmt.Errorf("round %d, client %d: %w", instruction.Round+1, r.Client, err)
		}
		f.Reply = &reply{r.Upload.N, r.Stats, r.Up, r.Down}
		f.update = r.Upload.Shared
		if slices.Contains(b.flights, f) {
			f.update = f.update.Clone().Axpy(-1, instruction.Shared)
		}
		delete(begun, r.Client)
	}

	for id := range begun {
		return fmt.Errorf("round %d: client %d did not answer", instruction.Round+1, id)
	}

	return nil
}

// counted returns an upload as the server merges it: the present parameters plus the client's update times its factor.
// The upload of a client that started from the present parameters is unchanged.
func (b *fedBuff) counted(f *flight, instruction message.Instruction) message.Reply {
	up := method.Upload{Client: f.Client, N: f.Reply.N, Shared: f.update, Extra: tensor.Map{}}
	if f.Version < instruction.Round {
		up.Shared = instruction.Shared.Clone().Axpy(b.plan.FedBuff.factor(instruction.Round-f.Version), f.update)
	}

	if b.plan.FedBuff.Weights == uniform {
		up.N = 1
	}

	return message.Reply{Client: f.Client, Upload: up, Stats: f.Reply.Stats, Up: f.Reply.Up, Down: f.Reply.Down}
}

// saved is the state that a checkpoint holds.
type saved struct {
	Seconds float64   `json:"seconds"`
	Starts  int       `json:"starts,omitempty"`
	Flights []*flight `json:"flights,omitempty"`
}

// layer is the name of simulated time in a checkpoint.
const layer = "simulated_time"

// Save adds the state of simulated time; its tensors are the uploads under way, by client.
func (c *Cohort) Save() (message.Saved, error) {
	out, err := c.Cohort.Save()
	if err != nil {
		return out, err
	}

	s, m := saved{Seconds: c.now}, tensor.Map{}
	if b := c.buffer; b != nil {
		s.Starts, s.Flights = b.starts, b.flights
		for _, f := range b.flights {
			m.Put(strconv.Itoa(f.Client), f.update)
		}
	}

	return out, out.Put(layer, s, m)
}

// Load restores the state of Save.
func (c *Cohort) Load(from message.Saved) error {
	var s saved
	m, err := from.Get(layer, &s)
	if err != nil {
		return err
	}

	c.now = s.Seconds
	if b := c.buffer; b != nil {
		b.starts, b.flights = s.Starts, s.Flights
		for _, f := range b.flights {
			if f.update = m.WithoutPrefix(strconv.Itoa(f.Client)); f.Reply == nil || len(f.update) == 0 {
				return fmt.Errorf("the checkpoint's %s: client %d has no upload", layer, f.Client)
			}
		}
	}

	return c.Cohort.Load(from)
}
