package method

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Data is a client's examples as features of its own backbone.
type Data interface {
	Len() int
	Labels() []int64
	// Order is the order of rows for one pass over the data; it may repeat and leave out rows.
	Order(r *rand.Rand) []int
	// Batch returns the inputs image [B,D] and label [B] of some rows, and patches [B,M,D] and pixels [B,3,S,S] if also
	// names them. Random numbers that these do not contain are under draw/.
	Batch(rows []int, r *rand.Rand, also ...string) (tensor.Map, error)
}

// Local is one client during one round.
type Local struct {
	Task         ClientSpec
	Round, Steps int // Steps counts the optimizer steps taken so far in this round
	Epoch        int // the pass over the data that runs, counted from 0
	LR           float64
	Optim        optim.Config // of the steps, which take the rate LR
	// parameters being trained; before its first step a tensor of Shared is the server's, and read only
	Shared, Private tensor.Map
	// Own are the client's own values of the shared parameters after the round, for its personal test, if Finish sets
	// them; nil for Shared.
	Own                 tensor.Map
	Received, Broadcast tensor.Map // what the server sent: Shared before training, and extras; read only
	State               tensor.Map // survives rounds, never leaves the client
	Scalars             map[string]float64
	Data                Data    // Begin may wrap it for the steps; Finish sees the client's own again
	LocalClasses        []int64 // classes that the client has examples of to train on, whatever wraps Data
	Rand                *rand.Rand
	Noise               Noise    // of differential privacy
	Sampling            Sampling // who trains in a round, as this client knows it from the experiment
	// The server trains on images of its own before round 0; no client has been asked for anything yet.
	Pretrains bool
	Alone     bool   // the client trains for a test of its own, and nobody gets the upload
	Draws     *Draws // where Rand is drawn from, by its methods; nil where nothing is traced
	// AuxGradients are the gradients of the losses of Scope.AuxLoss in this step, by name and parameter, as
	// AdjustGradients finds them.
	AuxGradients map[string]tensor.Map
	// Frozen are parameters that this step leaves unchanged: the optimizer gets no gradient. It is empty before
	// AdjustGradients, in which each layer may add some.
	Frozen []string
	// Rates are the learning rates of parameters that do not take LR, with their weight decay; set by Begin or
	// AdjustGradients.
	Rates map[string]float64
	// Cache holds what a method made of what it received, by a name of its own, for the other steps of this round.
	Cache map[string]any
	// Memory returns image [N,D] and label [N] of all training rows, before any method wraps Data.
	Memory func() (tensor.Map, error)
	// Eval computes a node over all of the client's training rows, with the current parameters.
	Eval func(build func(*Scope) graph.Node) (*tensor.Tensor, error)
}

// Global is the server between rounds. All of it is checkpointed.
type Global struct {
	Round     int
	Rounds    RoundCount
	LR        float64 // of the clients' steps in this round
	Clients   int
	Classes   int
	Seed      uint64
	Sampling  Sampling           // who trains in a round
	Width     int                // of prompts
	Task      ClientSpec         // of the client that the shared parameters were drawn for
	Infos     []ClientInfo       // what the server knows of each client; of one that did not join yet nothing
	Shared    tensor.Map         // the averaged parameters
	Broadcast tensor.Map         // extra tensors sent to everyone
	PerClient map[int]tensor.Map // extra tensors sent to one client
	State     tensor.Map         // stays on the server
	Notes     map[string]float64 // numbers of this round for its record, such as epsilon; Merge sets them
	Noise     Noise              // of differential privacy
	Draws     *Draws             // where Rand is drawn from, by its methods; nil where nothing is traced
	// Claimed says that clients on other machines state their Infos, which may be lies. What one of them states is no
	// reason for an error.
	Claimed bool
	// Interrupted returns the reason why the run ends, or nil; nil where nothing ends it. Long computations ask it.
	Interrupted func() error
	// Optimize minimises a loss over server-side parameters in place, by some steps of a new optimizer, and returns the
	// loss after them. The loss reads params with Scope.Param and rows as inputs of kind BroadcastInput.
	Optimize func(params tensor.Map, rows tensor.Map, loss func(*Scope) graph.Node, steps int, o optim.Config) (float64,
		error)
	// Compute returns the value of a node that reads rows as inputs of kind BroadcastInput.
	Compute func(rows tensor.Map, build func(*Scope) graph.Node) (*tensor.Tensor, error)
}

// Sampling is the draw of a round's clients: Size of Clients, without replacement. With Poisson each client is drawn
// independently, so that Size is a mean and a round may have no client.
type Sampling struct {
	Clients int
	Size    float64
	Poisson bool
}

// Draws reports whether some clients do not train in a round.
func (s Sampling) Draws() bool { return s.Size < float64(s.Clients) }

// ClientInfo holds the server's knowledge about a client.
type ClientInfo struct {
	Backbone string // features of different backbones do not compare
	Dim      int    // D, of its features
	Domain   string // empty where there are none
}

// Over returns the reason why the run ends, or nil.
func (g *Global) Over() error {
	if g.Interrupted == nil {
		return nil
	}
	return g.Interrupted()
}

// TooFewError reports that a round has too few uploads. It is no error of any of them, and the round changes nothing.
type TooFewError string

func (e TooFewError) Error() string { return string(e) }

// Rand is method.Rand of the run's seed, whose numbers a trace counts.
func (g *Global) Rand(path ...string) *rand.Rand { return g.Draws.Counted(Rand(g.Seed, path...)) }

// ExtrasFor returns the extra tensors that are sent to one client, which the caller may change.
func (g *Global) ExtrasFor(client int) tensor.Map {
	if g.PerClient[client] == nil {
		g.PerClient[client] = tensor.Map{}
	}
	return g.PerClient[client]
}

// Info returns what the server knows about a client; the zero value for an unknown client.
func (g *Global) Info(client int) ClientInfo {
	if client < 0 || client >= len(g.Infos) {
		return ClientInfo{}
	}
	return g.Infos[client]
}

// HasJoined reports whether a client has joined.
func (g *Global) HasJoined(client int) bool {
	return len(g.Infos) == 0 || g.Info(client).Backbone != ""
}

// AllJoined reports whether every client has joined.
func (g *Global) AllJoined() bool {
	return !slices.ContainsFunc(g.Infos, func(p ClientInfo) bool { return p.Backbone == "" })
}

// AggregatedClient is the Client of an upload that is the weighted mean of several uploads, as from secure aggregation.
// Its N is the sum of their weights.
const AggregatedClient = -1

// Upload is the result of one client's training. Its tensors are read only: they are also those of its client, and a
// server's State may hold them.
type Upload struct {
	Client int
	N      int // examples it trained on
	Shared tensor.Map
	Packed tensor.Map // sent in place of Shared by a method with a Codec; nil elsewhere
	Extra  tensor.Map
}

// Mean averages one part of every upload, weighted by examples, in float64 and in the order given.
func Mean(ups []Upload, part func(Upload) tensor.Map) tensor.Map {
	total := 0.0
	for _, u := range ups {
		total += float64(u.N)
	}

	out := tensor.Map{}
	if len(ups) == 0 || total == 0 {
		return out
	}

	weights := make([]float64, len(ups))
	for k, u := range ups {
		weights[k] = float64(u.N) / total
	}

	for name, first := range part(ups[0]) { // each name is summed alone, so map order does not matter
		rows, t := make([][]float32, len(ups)), tensor.New(first.Shape...)
		for k, u := range ups {
			if rows[k] = part(u)[name].Data; len(rows[k]) != t.Len() { // here, where a server catches the panic
				panic(fmt.Sprintf("method.Mean: %s is %v in one upload and %v in another", name, t, part(u)[name]))
			}
		}
		t.WeightedSum(weights, rows)
		out[name] = t
	}

	return out
}

// Draw returns a tensor of normal draws, which depend on seed, name and client alone.
func Draw(seed uint64, client int, name string, shape []int, std float64) *tensor.Tensor {
	t := tensor.New(shape...)
	if std == 0 {
		return t
	}

	r := Rand(seed, "init", name, fmt.Sprint(client))
	for i := range t.Data {
		t.Data[i] = float32(r.NormFloat64() * std)
	}

	return t
}

// DrawUniform returns a weight [in,out] of uniform draws within 1/sqrt(in), as torch.nn.Linear does.
func DrawUniform(seed uint64, name string, shape []int) *tensor.Tensor {
	t := tensor.New(shape...)
	r := Rand(seed, "init", name)
	bound := 1 / math.Sqrt(float64(shape[0]))
	for i := range t.Data {
		t.Data[i] = float32((2*r.Float64() - 1) * bound)
	}
	return t
}
