package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// round runs one round, the steps of docs/overview.md, and returns its record.
func (s *server) round(ctx context.Context) (record.Record, error) {
	// 1. The server draws clients, asks for statistics, and completes the instruction.
	round, err := s.instruct(ctx)
	if err != nil {
		return round.rec, err
	}

	// 2 and 3. The clients train and send their uploads.
	replies, err := round.train(ctx)
	if err != nil {
		return round.rec, err
	}

	// 4. The server checks and merges the uploads. The clients whose uploads count keep their new states.
	if err := round.merge(ctx, replies); err != nil {
		return round.rec, err
	}

	if err := round.accept(); err != nil {
		return round.rec, err
	}

	// 5. In a tested round every client is tested.
	if err := round.test(ctx); err != nil {
		return round.rec, err
	}

	return round.end(), nil
}

// round is a round in progress.
type round struct {
	*server
	clock       *phaseClock
	rec         record.Record
	instruction message.Instruction // to train
}

// instruct begins a round: it admits new clients, draws those that train and asks for the round's statistics.
func (s *server) instruct(ctx context.Context) (*round, error) {
	global := &s.global
	round := &round{server: s, clock: startPhases(s.cost, s.settings.Workers)}
	s.compute(ctx)
	if err := s.joinNew(); err != nil {
		return round, fmt.Errorf("round %d: %w", global.Round+1, err)
	}

	global.LR = s.rate(global.Round)
	round.rec = record.Record{Round: global.Round, LR: global.LR,
		Clients: s.plan.Sample(s.random.sample("participants", strconv.Itoa(global.Round)))}
	for _, q := range s.statistics {
		if err := round.ask(ctx, q); err != nil {
			return round, fmt.Errorf("round %d, statistic %s: %w", global.Round+1, q.Name, err)
		}
	}

	round.instruction = s.instructionTo(message.Train, round.rec.Clients)
	round.instruction.Codec = s.experiment.Method.Codec()
	return round, nil
}

// compute sets what the method may compute on the server during a round.
func (s *server) compute(ctx context.Context) {
	global, task := &s.global, method.ClientSpec{Width: s.global.Width, Clients: s.plan.Clients}
	global.Optimize = func(params, rows tensor.Map, loss func(*method.Scope) graph.Node, steps int,
		with optim.Config) (float64, error) {
		return s.worker.Fit(ctx, task, params, rows, loss, steps, with)
	}

	global.Compute = func(rows tensor.Map, build func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return s.worker.Compute(ctx, task, rows, build)
	}
	global.Interrupted, global.Noise = ctx.Err, s.random.noise(global.Round)
}

// instructionTo returns an instruction with the server's tensors.
func (s *server) instructionTo(kind message.Kind, clients []int) message.Instruction {
	global := &s.global
	return message.Instruction{Kind: kind, Round: global.Round, Clients: clients, Total: s.plan.Clients,
		Shared: global.Shared, Broadcast: global.Broadcast, PerClient: global.PerClient}
}

// ask passes the method the answers of all training clients to a statistic.
func (r *round) ask(ctx context.Context, q method.Statistic) error {
	instruction := r.instructionTo(message.Compute, r.plan.TrainingClients())
	instruction.Statistic = q.Name
	r.clock.lap(&r.clock.Server)
	replies, err := r.send(ctx, instruction)
	r.clock.lap(&r.clock.Statistics)
	if err == nil && len(replies) > 0 {
		_, err = r.dropInvalid(ctx, &r.global, replies, q.Aggregate)
	}

	return err
}

// send runs one instruction, counts its bytes, and returns the replies sorted by client.
func (r *round) send(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	replies, err := r.cohort.Run(ctx, instruction)
	if err != nil {
		return nil, err
	}

	r.updateInfos() // some may have joined to answer
	message.SortReplies(replies)
	for _, reply := range replies {
		r.rec.BytesUp += reply.Up
		r.rec.BytesDown += reply.Down
		r.rec.ParametersUp += message.UploadTensors(reply.Upload).Count()
		for _, id := range message.ClientsOf([]message.Reply{reply}) {
			r.rec.ParametersDown += instruction.ForClient(id).Tensors().Count()
		}
	}

	return replies, nil
}

// train sends the instruction until somebody answers, or until there is nobody else to ask. It returns the uploads.
func (r *round) train(ctx context.Context) ([]message.Reply, error) {
	if len(r.instruction.Clients) == 0 {
		return nil, nil
	}

	r.clock.lap(&r.clock.Server)
	for again := 0; ; again++ {
		replies, err := r.send(ctx, r.instruction)
		if err != nil {
			return nil, err
		}
		more := r.drawOthers(again)
		if len(replies) == 0 && more != nil {
			r.instruction.Clients = more
			continue
		}
		r.clock.lap(&r.clock.Training)
		replies = r.dropSkipped(replies)
		r.rec.Clients = message.ClientsOf(replies)
		return replies, nil
	}
}

// drawOthers draws as many others in addition to clients of which no round waits for any, among those that rounds wait
// for; nil where there is no reason, or nobody else. The sample of differential privacy is never drawn again.
func (r *round) drawOthers(again int) []int {
	if r.private() {
		return nil
	}

	drawn := r.instruction.Clients
	var others []int
	all := r.cohort.Participants()
	for _, id := range r.plan.TrainingClients() {
		switch {
		case !all[id].Joined || all[id].Silent:
		case slices.Contains(drawn, id):
			return nil
		default:
			others = append(others, id)
		}
	}

	if len(others) == 0 {
		return nil
	}

	draw := method.Rand(r.plan.Seed, "participants", strconv.Itoa(r.global.Round), "again", strconv.Itoa(again))
	out := slices.Clone(drawn)
	for _, i := range draw.Perm(len(others))[:min(len(drawn), len(others))] {
		out = append(out, others[i])
	}

	slices.Sort(out)
	return out
}

// dropSkipped removes replies for several clients that have no upload, and records the clients whose messages were
// refused behind such replies.
func (r *round) dropSkipped(replies []message.Reply) []message.Reply {
	return slices.DeleteFunc(replies, func(reply message.Reply) bool {
		for _, x := range reply.Refused {
			r.cohort.Rejected(r.rec.Round, x.Client, errors.New(x.Reason))
		}
		if reply.Skipped {
			r.rec.Warnings = append(r.rec.Warnings, reply.Warnings...)
			r.rec.Notes = reply.Notes
		}
		return reply.Skipped
	})
}

// merge passes the method the uploads, and records what it merged.
func (r *round) merge(ctx context.Context, replies []message.Reply) error {
	global, rec := &r.global, &r.rec
	for _, reply := range replies {
		if err := message.CheckUpload(global.Shared, reply.Upload); err != nil {
			return fmt.Errorf("round %d, client %d: %w", global.Round+1, reply.Client, err)
		}
	}

	var sent tensor.Map // with which uploads are compared
	if r.settings.Client.Terms && !r.cohort.Traits().Summed && !r.private() {
		sent = global.Shared.Clone()
	}

	global.Notes = map[string]float64{}
	maps.Copy(global.Notes, rec.Notes)
	merged, err := r.mergeUploads(ctx, replies)
	if err == nil {
		err = checkFinite(global)
	}

	if err != nil {
		return fmt.Errorf("round %d, merge: %w", global.Round+1, err)
	}

	if len(merged) < len(replies) {
		rec.Clients = message.ClientsOf(merged)
	}

	if len(merged) > 0 {
		rec.Loss = new(float64)
	}

	for _, reply := range merged {
		*rec.Loss += reply.Stats.Loss / float64(len(merged))
		maps.Copy(global.Notes, reply.Notes)
		rec.Warnings = append(rec.Warnings, reply.Warnings...)
	}

	rec.Notes = global.Notes
	if r.settings.Client.Terms {
		rec.Terms, rec.Drift = record.MeanTerms(merged), record.DriftOf(sent, merged)
	}

	return nil
}

// mergeUploads returns the replies that were merged. A round without any changes nothing, unless it drew nobody, or the
// method hides which clients on other machines answered: then it has its noise too, and costs as much.
func (r *round) mergeUploads(ctx context.Context, replies []message.Reply) ([]message.Reply, error) {
	global, traits := &r.global, r.cohort.Traits()
	if len(replies) == 1 && replies[0].Sum != nil {
		return r.mergeSum(replies[0]), ctx.Err() // of a run that ends, no round is skipped
	}

	hides := r.private() && traits.Claimed && !traits.Summed
	if len(replies) == 0 && len(r.instruction.Clients) > 0 && !hides {
		if global.Round == r.plan.Rounds-1 && method.NeedsLastRound(r.experiment.Method) {
			r.rec.Warnings = append(r.rec.Warnings, fmt.Sprintf("round %d, the last, has no upload: the prompts are "+
				"those of the round before, and not the mean over rounds that %s ends with", r.plan.Rounds,
				r.experiment.MethodName))
		}
		return replies, nil
	}

	merged, err := r.dropInvalid(ctx, global, replies, r.experiment.Method.Merge)
	if errors.As(err, new(method.TooFewError)) && traits.Claimed {
		r.rec.Warnings = append(r.rec.Warnings, fmt.Sprintf("round %d is skipped: %v", global.Round+1, err))
		return merged, nil
	}

	return merged, err
}

// mergeSum merges the sum of several clients. If the method fails over the sum, for example because there are too few
// clients for its noise, the round changes nothing. A panic over claims of clients is such a failure.
func (r *round) mergeSum(sum message.Reply) []message.Reply {
	global := &r.global
	before := cloneGlobal(global)
	merge := func() error { return r.experiment.Method.Merge(global, message.UploadsOf([]message.Reply{sum})) }
	if claims := merge; r.cohort.Traits().Claimed {
		merge = func() error { return recovered(global, claims) }
	}

	if err := merge(); err != nil {
		*global = *before
		r.rec.Warnings = append(r.rec.Warnings, fmt.Sprintf("round %d is skipped: %v", global.Round+1, err))
		return nil
	}

	return []message.Reply{sum}
}

// accept tells the clients whose uploads count.
func (r *round) accept() error {
	r.clock.lap(&r.clock.Server)
	defer r.clock.lap(&r.clock.Disk)
	return r.cohort.Accept(r.global.Round, r.rec.Clients)
}

// test tests the clients in every plan.TestEvery-th round and in the last.
func (r *round) test(ctx context.Context) error {
	if n := r.global.Round + 1; n%max(1, r.plan.TestEvery) != 0 && n != r.plan.Rounds {
		return nil
	}
	defer r.clock.lap(&r.clock.Evaluation)
	return r.evaluate(ctx, &r.rec)
}

// end completes the record. Where epsilon assumes a sample of clients that nobody may know, it hides the sample.
func (r *round) end() record.Record {
	r.rec.AttackedBy(r.plan.Attackers)
	report := r.cohort.Report()
	r.rec.LimitedClients, r.rec.Simulated = report.LimitedClients, report.Simulated
	r.rec.BytesUp, r.rec.BytesDown = r.rec.BytesUp+report.Up, r.rec.BytesDown+report.Down
	if s := r.global.Sampling; r.random.secret && s.Draws() && r.private() {
		r.rec.HideSample(s.Poisson)
	}

	r.clock.end(&r.rec)
	r.global.Round++
	return r.rec
}
