package method

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Method is one federated method.
type Method interface {
	Objective
	Client
	Server
}

// Objective builds graphs. It is the same on every machine and holds no state.
type Objective interface {
	Params(ClientSpec) []Param                       // every learnable tensor, once
	Logits(*Scope) graph.Node                        // class scores [B,C], used to test
	Loss(scope *Scope, logits graph.Node) graph.Node // scalar to minimise, the sum of terms named by Scope.Term
	View() View                                      // with which shared parameters the paper tests a client
}

// Client surrounds the local steps on one client.
type Client interface {
	Begin(*Local) error                               // before the steps: wrap l.Data, prepare l.State and l.Scalars
	AdjustGradients(local *Local, g tensor.Map) error // each gradient, in place, before the optimizer
	Finish(*Local, *Upload) error                     // after the steps: add what the server needs
	Extras(ClientSpec) []Extra                        // all that Finish adds to an upload, and nothing else
	Codec() Codec                                     // how uploads are compressed; nil for not at all
}

// Codec compresses uploads. It acts on the shared parameters of an upload after everything else that a client does to
// them.
type Codec interface {
	// Pack sets Upload.Packed from the upload's shared parameters, and replaces these by what Unpack makes of it.
	// l.State may hold the difference for the next round.
	Pack(local *Local, up *Upload) error
	// Packed declares the tensors of Upload.Packed for shared parameters that the client received.
	Packed(received tensor.Map) tensor.Specs
	// Unpack returns the shared parameters of a message, which may hold anything. received are the shared parameters
	// that its client was sent.
	Unpack(received, packed tensor.Map) (tensor.Map, error)
}

// Server turns uploads into the next state.
type Server interface {
	Start(*Global) error // before round 0: extras such as a discriminator's first weights
	// Statistics are computed by clients before this round's training, usually none. Those of round 0 are computed
	// again, by all clients, before a round that clients on other machines joined for.
	Statistics(round int) []Statistic
	// Join comes before a round that clients on other machines joined for, with their numbers: they lack what the
	// others were sent.
	Join(global *Global, clients []int) error
	// Merge gets uploads sorted by client. There are none only where Poisson sampling drew nobody.
	Merge(global *Global, ups []Upload) error
}

// Statistic is one round trip to the clients before they train: each computes an answer, and the server aggregates the
// answers. Messages hold only its name: both ends build the same method from the same options.
type Statistic struct {
	Name      string
	Compute   func(*Local) (tensor.Map, error)
	Answer    func(ClientSpec) []Extra // the tensors of Compute
	Aggregate func(*Global, []Upload) error
}

// Extra declares a tensor that clients upload beside the shared parameters, so that a server can refuse any other.
type Extra struct {
	Name  string
	Shape []int // float32; -n is a size of at most n
	// Counts marks numbers of the client's training examples: whole, not negative, and together no more than all.
	Counts bool
}

// Owner is the side that owns a parameter.
type Owner int

const (
	Shared  Owner = iota // averaged by the server, the same value for everyone at the start of a round
	Private              // stays on its client between rounds and never leaves it
)

func (o Owner) String() string { return [...]string{"shared", "private"}[o] }

// View is the evaluation by which a client is tested, with one of two values of the shared parameters. Private
// parameters are the client's own in both.
type View int

const (
	GlobalView   View = iota // the values of the server
	PersonalView             // the client's own values after its last training
)

func (v View) String() string { return [...]string{"global", "personal"}[v] }

// Param is one learnable tensor.
type Param struct {
	Name  string
	Shape []int
	Std   float64 // of the normal distribution it starts from; 0 starts at zero
	Owner Owner
	// Words are not empty where the parameter is the offset of a prompt from the embeddings of these words.
	Words string
	// Init returns the initial value of a private parameter on every client; nil draws one on each client.
	Init func(seed uint64) *tensor.Tensor
}

// SharedNames lists the parameters among some that the server averages.
func SharedNames(params []Param) (out []string) {
	for _, p := range params {
		if p.Owner == Shared {
			out = append(out, p.Name)
		}
	}
	return out
}

// Initial returns the initial value of a parameter on a client, or with -1 on the server.
func (p Param) Initial(seed uint64, client int) *tensor.Tensor {
	if p.Init != nil {
		return p.Init(seed)
	}
	return Draw(seed, client, p.Name, p.Shape, p.Std)
}

// Alike returns p with the same initial draw on all clients.
func (p Param) Alike() Param {
	p.Init = func(seed uint64) *tensor.Tensor { return Draw(seed, -1, p.Name, p.Shape, p.Std) }
	return p
}

// ClientSpec describes the client for which a method is built.
type ClientSpec struct {
	Client  int     // counted from 0
	Clients int     // how many there are
	Classes int     // C
	Width   int     // w, of the text tower's tokens
	Dim     int     // D, of the features
	Patches int     // M, image patches; 0 where the backbone offers none
	Scale   float64 // exp(logit_scale) of the backbone
	Bias    float64 // logit_bias of the backbone, where it was trained with a sigmoid loss
	Sigmoid bool    // labels are fitted by a sigmoid for each class, in place of a softmax over all

	Backbone     string // its name; features of different backbones do not compare
	ImageSize    int    // S, pixels on a side
	VisionWidth  int    // of the image tower's tokens; 0 where it takes prompts of pixels only
	VisionLayers int    // blocks of a vision transformer; 0 for a ResNet
	VisionUnits  int    // of its feed-forward layers
	Tokens       int    // of an image behind its last block, class token and patches; 0 where they cannot be reached
	TextLayers   int    // blocks of the text tower; 0 where they cannot be reached, in an exported model
	TextUnits    int    // of its feed-forward layers
}

// ScopeOf starts the graph of a method for one client.
func ScopeOf(m Method, task ClientSpec) *Scope { return NewScope(task, m.Params(task)) }

// LossOf builds the class scores and the loss of a method for one client.
func LossOf(m Method, task ClientSpec) (scope *Scope, logits, loss graph.Node) {
	scope = ScopeOf(m, task)
	logits = m.Logits(scope)
	return scope, logits, m.Loss(scope, logits)
}

// Base is plain FedAvg on cross entropy. A base method embeds it and writes what differs. Base calls no other method of
// Method: a call here could not reach the embedding type.
type Base struct{}

// Loss is the mean cross entropy of the class scores [B,C] with the labels, as Scope.CrossEntropy says.
func (Base) Loss(scope *Scope, logits graph.Node) graph.Node {
	return scope.CrossEntropy(logits)
}

// View is the test with the server's parameters.
func (Base) View() View { return GlobalView }

func (Base) Begin(*Local) error                       { return nil }
func (Base) AdjustGradients(*Local, tensor.Map) error { return nil }
func (Base) Finish(*Local, *Upload) error             { return nil }
func (Base) Extras(ClientSpec) []Extra                { return nil }
func (Base) Codec() Codec                             { return nil }
func (Base) Start(*Global) error                      { return nil }
func (Base) Statistics(int) []Statistic               { return nil }
func (Base) Join(*Global, []int) error                { return nil }

// FedAvg is Base with Properties: a base method embeds it whose server needs nothing but the mean.
type FedAvg struct{ Base }

// Properties declares a mean that is weighted by examples.
func (FedAvg) Properties() Properties { return Properties{Mean: ByExamples} }

// Merge replaces the shared parameters by their mean over the uploads, weighted by examples (FedAvg: McMahan et al.,
// AISTATS 2017, algorithm 1).
func (Base) Merge(global *Global, ups []Upload) error {
	global.Shared = Mean(ups, func(u Upload) tensor.Map { return u.Shared })
	return nil
}
