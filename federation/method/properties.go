package method

// Properties are the declarations of a layer of a stack (a method or a wrapper) with its options. Differential privacy,
// secure aggregation and the layers around it rely on them. The zero value is the careful one: the server needs every
// client's own upload.
type Properties struct {
	// Mean is not empty where the layer's server needs nothing of uploads but the mean of the shared parameters, and of
	// Extras with a tensor PREFIX/NAME for each of them. It says how clients count in that mean. One upload may then
	// stand for a round (secure aggregation), and noise on it covers everything that clients reveal (differential
	// privacy).
	Mean Weights
	// Needs names what the server needs beside the mean, where Mean is empty, and the option that avoids it, for the
	// error that refuses the stack: "every client's prototypes; set lambda: 0".
	Needs string
	// Roles are roles that only one layer of a stack can have, each with the option that gives it up ("leave server_lr
	// at 1"), or "" where the layer has to be removed.
	Roles map[Role]string
	// Outermost forbids wrappers outside this one: they would see the unprotected uploads.
	Outermost bool
	// HidesClients marks a stack that hides single clients: nothing measured on one client may be published, and the
	// server accepts a round without uploads, as Poisson sampling may draw nobody.
	HidesClients bool
	// Noise marks a layer that adds noise of differential privacy. Across machines the noise comes from a secret of the
	// side that adds it.
	Noise bool
	// SecretNoise requires that noise of differential privacy, and the draw of a round's clients, come from a secret in
	// one process too.
	SecretNoise bool
	// Synthetic marks a method that needs training images on the server.
	Synthetic bool
	// Directions says that clients upload directions in place of their parameters.
	Directions bool
	// Delays are the parts of the layer that act only after some rounds, as after a warm-up.
	Delays []DelayedTerm
	// LastRound says that Merge makes the result in the last of the planned rounds: the run must not end before.
	LastRound bool
	// Reproduces is the option of the layer that makes a known defect of published code again on purpose, as
	// "options.KEY: VALUE"; empty for none.
	Reproduces string
	// Note is what a user must know before a run, such as a choice that an option left out made; empty for nothing.
	Note string
}

// DelayedTerm is a part of a layer that does not act in the first rounds of a run.
type DelayedTerm struct {
	Part   string // in words: "FedAPPR's adversarial term"
	Option string // of the layer, which sets Rounds
	Rounds int    // in which the part does not act
}

// Describer is a layer that declares properties, its own without those of the layers inside it.
type Describer interface{ Properties() Properties }

// MeanInside is embedded in a wrapper that leaves the mean to the layers inside.
type MeanInside struct{}

// Properties says so.
func (MeanInside) Properties() Properties { return Properties{Mean: InnerWeights} }

// PropertiesOf returns the properties of a layer, without those of the layers inside it.
func PropertiesOf(m Method) Properties {
	if s, ok := m.(Describer); ok {
		return s.Properties()
	}
	return Properties{}
}

// NeedsLastRound reports whether a layer of a stack makes the result in the last of the planned rounds.
func NeedsLastRound(m Method) bool { return Any(m, func(p Properties) bool { return p.LastRound }) }

// Weights names the weights of clients in a mean.
type Weights string

const (
	ByExamples   Weights = "examples" // a client counts as often as it has examples (FedAvg)
	Uniform      Weights = "uniform"  // a client counts once
	InnerWeights Weights = "inside"   // a wrapper leaves the mean to the layers inside
)

// Role is a task that only one layer of a stack can have.
type Role string

const (
	ServerStep      Role = "replace the server's averaging step"           // as FedOpt does
	DriftCorrection Role = "correct client drift with states of their own" // as SCAFFOLD and FedDyn do
	RoundStart      Role = "decide where clients start a round"            // as FedAMP does
)
