package personal

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
)

// FedPer keeps some of a base method's shared parameters on each client and averages the others; a step trains all.
//
// Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818, algorithms 1 and 2. There the
// private parameters are a network's last layers; here they are named, such as image/prompt of ivlp, meta of cocoop or
// couple of maple. A client is tested with the average of the others and its own.
type FedPer struct {
	method.Method
	Split `config:",squash"`
}

// allAveraged is FedAvg: private parameters have to be named for each base method.
var allAveraged = Split{Private: []string{"none"}}

var fedPerDef = layer.Def{Name: "fedper", Title: "FedPer",
	Paper:   "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818",
	Default: FedPer{Split: allAveraged}}

// Check reports names that the base method does not share, a split that leaves nothing to share, and a base method
// whose server needs more than the mean. The wrapper changes the owners of the base method's parameters, and so comes
// right after it, before all other wrappers.
func (m FedPer) Check() error { return m.check(m.Method) }

// Properties leaves the mean, now of fewer parameters, to the base method.
func (FedPer) Properties() method.Properties { return method.Properties{Mean: method.InnerWeights} }

// Params are the base method's, those that option private names with the owner private. These start from the same
// values on every client, those that the server would have sent.
func (m FedPer) Params(t method.ClientSpec) []method.Param { return m.params(m.Method, t) }

// Start starts the base method with all of its parameters, so that draws are those of a run without the wrapper, and
// takes the private ones from the server.
func (m FedPer) Start(global *method.Global) error { return m.start(m.Method, global) }
