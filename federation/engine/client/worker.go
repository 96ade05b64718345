package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Worker executes instructions for clients. It is the same code behind every Cohort, and safe for concurrent use.
// NewWorker returns one.
type Worker struct {
	Experiment spec.Experiment // the clients of it are passed with each call
	Settings   Settings

	compiler   *compiler
	evaluators map[string]setEvaluator
	shared     *sharedOptimizer // nil for a fresh one in every turn
	pretrains  bool             // on synthetic images, before round 0
	alone      bool             // for a test, without an upload
}

// Settings decide how a worker runs, not what it computes.
type Settings struct {
	Session ort.Options
	Tracer  trace.Tracer  // nil for none
	Guard   message.Guard // nil for none
	Terms   bool          // measure each term of the loss, for the records; it changes nothing that is trained
	// Noise is the source of a client's noise of differential privacy; nil for the seed, as in a simulation.
	Noise func(client int) *noise.Noise
	Texts KeptTexts // features of hand-written texts; nil computes them in every process
	// PrefixBytes bounds the values that a worker keeps of forward passes at the parameters that the server sent; 0 for
	// 512 MiB, below 0 for none. A step whose forward pass does not fit twice is computed in one graph, like every
	// later step of a turn.
	PrefixBytes int
	Programs    Programs // nil for none
	// DeviceGraphs builds the graphs that a GPU runs also on the CPU: whole in each step.
	DeviceGraphs bool
}

// KeptTexts returns features of the given shape that were kept under a key. Otherwise it computes and keeps them.
type KeptTexts func(key [sha256.Size]byte, shape []int, compute func() (*tensor.Tensor, error)) (*tensor.Tensor, error)

// NewWorker returns the client side of an experiment; Close frees its sessions.
func NewWorker(experiment *spec.Experiment, set Settings) *Worker {
	capacity := cmp.Or(set.PrefixBytes, initialBytes)
	if set.Programs != nil {
		capacity = 0
	}

	// several clients in one run fill a device; initial steps, which run for each client alone, would leave it idle
	if experiment.BatchClients > 1 && set.Session.WithProvider().Provider != ort.CPU {
		capacity = 0
	}

	k := caches{values: newValueCache(testBytes, keptTests), tested: newValueCache(testBytes, keptTests),
		images: newValueCache(imageBytes, 0), initial: newValueCache(capacity, 0)}
	k.images.fixed = true
	return newWorker(experiment, set, k)
}

func newWorker(experiment *spec.Experiment, set Settings, caches caches) *Worker {
	w := &Worker{Experiment: *experiment, Settings: set}
	w.compiler = newCompiler(experiment, set, caches)
	w.evaluators = setEvaluators(experiment, set, caches)
	if experiment.Training.Shared {
		w.shared = &sharedOptimizer{tensor.Map{}}
	}

	return w
}

// Close frees the compiled sessions. No call may be in flight.
func (w *Worker) Close() error {
	err := w.compiler.close()
	for _, x := range w.evaluators {
		err = errors.Join(err, x.worker.Close())
	}
	return err
}

// Task describes a client to the method: its number, how many clients there are, its backbone, and the number of
// classes.
func (w *Worker) Task(client *spec.Client, clients int) method.ClientSpec {
	return spec.TaskOf(client.Backbone, client.ID, clients, len(w.Experiment.Classes))
}

// Begin starts one client's turn from an instruction and the client's state. It returns the state with newly drawn
// private parameters that the client lacked. What Local.Eval computes ends with ctx.
func (w *Worker) Begin(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (*method.Local, message.ClientState) {
	task := w.Task(client, instruction.Total)
	state.Private = maps.Clone(state.Private)
	if state.Private == nil {
		state.Private = tensor.Map{}
	}

	for _, p := range w.Experiment.Method.Params(task) {
		if p.Owner == method.Private && state.Private[p.Name] == nil {
			state.Private[p.Name] = p.Initial(w.Experiment.Plan.Seed, client.ID)
		}
	}

	local := &method.Local{Task: task, Round: instruction.Round, Received: instruction.Shared, Broadcast: tensor.Map{},
		Shared: maps.Clone(instruction.Shared), Private: state.Private.Clone(), State: state.Method.Clone(),
		Scalars: map[string]float64{}, Cache: map[string]any{}, Optim: w.Experiment.Training.Optim,
		Pretrains: w.pretrains, Alone: w.alone, Data: client.Train, Rand: method.Rand(w.Experiment.Plan.Seed, "round",
			strconv.Itoa(instruction.Round), "client", strconv.Itoa(client.ID), instruction.Statistic)}

	if w.Settings.Tracer != nil {
		local.Draws = method.NewDraws(nil)
		local.Rand = local.Draws.Counted(local.Rand)
	}

	for _, extras := range []tensor.Map{instruction.Broadcast, instruction.PerClient[client.ID]} {
		maps.Copy(local.Broadcast, message.WithoutGuardPart(extras))
	}

	if client.Train != nil {
		local.LocalClasses = client.Classes()
	}

	plan := w.Experiment.Plan
	plan.Clients = instruction.Total
	local.Sampling = plan.Sampling()
	refuse := func(why error) method.Noise {
		return func(string, []byte) (*rand.Rand, int, error) { return nil, 0, why }
	}
	switch {
	case w.pretrains: // images of the server's own need no secret
	case w.Settings.Noise == nil && method.Any(w.Experiment.Method,
		func(p method.Properties) bool { return p.SecretNoise }):
		local.Noise = refuse(errNoSecret)
	case w.Settings.Noise == nil:
	case instruction.Round >= plan.Rounds:
		local.Noise = refuse(fmt.Errorf("epsilon assumes %d rounds", plan.Rounds))
	default:
		local.Noise = w.Settings.Noise(client.ID).ForRound(instruction.Round, true)
	}

	local.Memory = sync.OnceValues(func() (tensor.Map, error) { return spec.Memory(client, w.Experiment.Plan.Seed) })
	local.Eval = func(build func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return w.evalRows(ctx, client, local, state, build)
	}
	return local, state
}

// errNoSecret is the error of a client's noise where the method needs noise from a secret, and the machine has none,
// such as a worker of a cluster.
var errNoSecret = errors.New("the option secure of dp needs noise from a secret, and this machine was given none; " +
	"run clients that add noise without --cluster, or set where: server")
