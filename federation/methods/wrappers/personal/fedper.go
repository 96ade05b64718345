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
	method.MeanInside // of fewer parameters

	Private []string `config:"private"`
}

// LongHelp implements configtags.LongHelp.
func (FedPer) LongHelp() map[string]string {
	return map[string]string{"private": "shared parameters that stay on their clients, by name or by the part of the " +
		"name before a slash; none: all are shared, which is FedAvg"}
}

// allAveraged is FedAvg: private parameters have to be named for each base method.
var allAveraged = FedPer{Private: []string{"none"}}

var fedPerDef = layer.Def{Name: "fedper", Title: "FedPer",
	Paper:   "Arivazhagan et al., Federated Learning with Personalization Layers, arXiv 1912.00818",
	Default: allAveraged}
