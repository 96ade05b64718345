package personal

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
)

// FedPer keeps some of a base method's shared parameters on each client and averages the others; a step trains all.
//
// Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818, algorithms 1 and 2. There the
// private parameters are a network's last layers; here they are named, such as image/prompt of ivlp, meta of cocoop or
// couple of maple. They start from the same values on every client, those that the server would have sent, and a client
// is tested with the average of the others and its own.
//
// It changes the owners of the base method's parameters, and so comes right after it, before all other wrappers.
type FedPer struct {
	method.Method
	Split `config:",squash"`
}

// allAveraged is FedAvg: private parameters have to be named for each base method.
var allAveraged = Split{Private: []string{"none"}}

var fedPerDef = layer.Def{Name: "fedper", Title: "FedPer",
	Paper:   "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818",
	Default: FedPer{Split: allAveraged}}

func (m FedPer) Check() error { return m.check(m.Method) }

func (FedPer) Properties() method.Properties { return method.Properties{Mean: method.InnerWeights} }

func (m FedPer) Params(t method.ClientSpec) []method.Param { return m.params(m.Method, t) }

func (m FedPer) Start(g *method.Global) error { return m.start(m.Method, g) }
