package method

// Properties are what a layer of a stack, a method or a wrapper, states of itself with the options that it has, beyond
// what it computes: what differential privacy, secure aggregation and the layers around it go by. The zero value, which
// a layer that states nothing has, is the careful one: its server needs every client's own upload.
type Properties struct {
	// Mean says how clients count in the mean of a round's shared parameters, and of Extras with a tensor PREFIX/NAME
	// for each of them, where that mean is all that the layer's server needs of uploads. One upload may then stand for
	// all of a round (secure aggregation), and noise on it covers all that clients give away (differential privacy).
	// Empty where the server needs more.
	Mean Weights
	// Needs says what it needs more, where Mean is empty, and how to do without, for the error that refuses the stack:
	// "every client's prototypes; set lambda: 0".
	Needs string
	// Roles are those that one layer of a stack alone can have, each with the way to give it up ("leave server_lr at
	// 1"), or "" where the layer has to go.
	Roles map[Role]string
	// Outermost tells that no wrapper may be outside this one: it would see the unprotected uploads.
	Outermost bool
	// Scores tells that a wrapper replaces the class scores that the layers inside learn by, so that no layer outside
	// may learn by them.
	Scores bool
	// HidesClients tells that the stack hides single clients, so that nothing measured on one of them may be published;
	// its server can make a round of no uploads, as Poisson sampling draws them.
	HidesClients bool
	// Noise tells that the layer adds noise of differential privacy, which across machines comes from a secret of
	// whoever adds it.
	Noise bool
	// SecretNoise tells that noise of differential privacy, and the draw of a round's clients, must come from a secret
	// in one process too.
	SecretNoise bool
	// Synthetic tells that the method makes no sense without images of the server's own.
	Synthetic bool
	// Delays are the parts of the layer that act only after some rounds, as after a warm-up.
	Delays []Delay
}

// Delay is a part of a layer that does not act in the first rounds of a run.
type Delay struct {
	Part   string // in words: "FedAPPR's adversarial term"
	Option string // of the layer, which sets Rounds
	Rounds int    // without the part; 0 for a part that acts from the start
}

// Describer is a layer that states something of itself. It speaks for itself alone: a wrapper says nothing of what is
// inside it.
type Describer interface{ Properties() Properties }

// PropertiesOf gives what a layer, without those inside it, states of itself.
func PropertiesOf(m Method) Properties {
	if s, ok := m.(Describer); ok {
		return s.Properties()
	}
	return Properties{}
}

// Weights are how clients count in a mean.
type Weights string

const (
	ByExamples Weights = "examples" // each as often as it has examples (FedAvg)
	Uniform    Weights = "uniform"  // each once
	AsInside   Weights = "inside"   // of a wrapper that leaves the mean to the layers inside
)

// Role is what only one layer of a stack can do.
type Role string

const (
	ServerStep      Role = "replace the server's averaging step"
	DriftCorrection Role = "correct client drift with states of their own"
	RoundStart      Role = "decide where clients start a round"
)
