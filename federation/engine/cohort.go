package engine

import (
	"math/rand/v2"

	"promptfed/federation/configtags"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/convert"
)

// This file is the only place that knows which capabilities a run has: what Settings leave out is chosen here, and the
// layers of the server's cohort are put together here.

// withDefaults returns settings without callbacks that may be missing.
func (set Settings) withDefaults() Settings {
	if set.OnTurn == nil {
		set.OnTurn = func(message.Instruction, int) {}
	}

	if set.OnRound == nil {
		set.OnRound = func(record.Record) {}
	}

	if set.OnWarning == nil {
		set.OnWarning = func(string) {}
	}

	set.Workers = max(1, set.Workers)
	return set
}

// participants lists all clients as the server knows them at the start.
func participants(experiment *spec.Experiment, set Settings) []message.Participant {
	if set.Remote != nil {
		return set.Remote.Participants()
	}
	return convert.Slice(experiment.Clients, func(site *spec.Client) message.Participant {
		return message.Participant{Joined: true, Task: experiment.Task(site), Domain: site.Domain,
			Digest: experiment.Digests[site.Backbone.Name()]}
	})
}

// check returns an error for an experiment that cannot run, before round 0.
func check(experiment *spec.Experiment, set Settings, clients []message.Participant) error {
	if err := checkPlan(experiment, len(clients)); err != nil {
		return err
	}

	elsewhere, secure := set.Remote != nil || set.Executor != nil, set.Client.Guard != nil || set.Wrap != nil
	switch {
	case set.Client.Terms && set.Client.Guard != nil:
		return configtags.KeyErrorf("eval.terms", "each client would report the norms of its own gradients, which "+
			"secure aggregation hides; use only one of the two")
	case experiment.Training.Shared && (elsewhere || secure):
		return configtags.KeyErrorf("train.optimizer_state", "shared passes one optimizer from client to client; run "+
			"it in one process, without secure aggregation")
	case experiment.SimulatedTime != nil && (set.Remote != nil || secure):
		return configtags.KeyErrorf("simulated_time.speeds", "clients on other machines take real time, and secure "+
			"aggregation needs the clients that began a round; use it with promptfed run, without secure_aggregation")
	case experiment.BatchClients > 1 && elsewhere:
		return configtags.KeyErrorf("runtime.batch_clients", "%d trains clients of one process together, but here "+
			"each client trains alone; set it to 1", experiment.BatchClients)
	case set.Remote != nil:
		return checkParticipants(experiment, clients)
	}

	return checkClients(experiment)
}

// randomness is where the server's random numbers come from: a secret, or the seed of the run.
type randomness struct {
	sample func(words ...string) *rand.Rand // for the draw of a round's clients
	noise  func(round int) method.Noise     // of differential privacy; returns nil where it comes from the seed
	client func(client int) *noise.Noise    // of clients in this process; nil where it comes from the seed
	secret bool                             // nobody else knows the sample of clients
}

// openRandomness opens the secret of a run that needs one. Sampling adds to privacy only if the draw of clients is
// secret.
func (set Settings) openRandomness(experiment *spec.Experiment) (randomness, error) {
	secret := set.ServerNoise
	if secret == nil && method.Any(experiment.Method, func(p method.Properties) bool { return p.SecretNoise }) {
		var err error
		if secret, err = runNoise(set); err != nil {
			return randomness{}, err
		}
	}

	if secret == nil {
		return randomness{
			sample: func(words ...string) *rand.Rand { return method.Rand(experiment.Plan.Seed, words...) },
			noise:  func(int) method.Noise { return nil },
			client: set.Client.Noise,
		}, nil
	}

	out := randomness{sample: secret.Rand, client: set.Client.Noise, secret: true,
		noise: func(round int) method.Noise { return secret.ForRound(round, false) }}
	if set.Remote == nil {
		out.client = secret.Client
	}

	return out, nil
}

// assemble puts the server's cohort together, the innermost layer first.
func (s *server) assemble(members []message.Participant) message.Cohort {
	experiment, set := s.experiment, s.settings
	var out message.Cohort
	if set.Remote != nil {
		out = set.Remote
	} else {
		p := &pool{settings: set, members: members, clients: experiment.Clients, worker: s.worker, store: s.store,
			cost:  s.cost,
			turns: s.worker}
		if set.Executor != nil {
			p.turns = client.Executed{Worker: s.worker, By: set.Executor}
		}
		out = p
	}

	if experiment.SimulatedTime != nil {
		out = simulatedtime.New(out, experiment.SimulatedTime, s.plan.TrainingClients(), int(s.plan.Sampling().Size),
			func(client int) int {
				return experiment.Training.StepsOf(client, experiment.Clients[client].Train.Len())
			})
	}

	if set.Wrap != nil {
		out = set.Wrap(out)
	}

	if set.Client.Tracer != nil {
		out = trace.Server(out, set.Client.Tracer, &s.global)
	}

	return out
}
