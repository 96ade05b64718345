package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
)

// GPTFL is PromptFL whose prompt the server has trained on images of its own before round 0. OUR ADAPTATION of GPT-FL:
// the published system generates those images from text and trains a whole model on them, which the federation then
// fine-tunes with FedAvg; here the images are given as a data set (section synthetic of a configuration: a folder, or
// synthetic ones), and the model is a prompt. Their classes must be among those of the experiment.
//
// Zhang et al., GPT-FL: Generative Pre-trained Model-Assisted Federated Learning, arXiv 2306.02210, sections 3.1-3.3.
// Any other method starts in the same way where a configuration has the section.
type GPTFL struct {
	PromptFL `config:",squash"`
}

var gptflDef = layer.Def{Name: "gptfl", Title: "GPT-FL (adapted)",
	Paper:   "after Zhang et al., GPT-FL: Generative Pre-trained Model-Assisted Federated Learning, arXiv 2306.02210",
	Traffic: layer.PromptTraffic,
	Default: GPTFL{promptFL}}

// Properties are PromptFL's, and ask for training images on the server.
func (m GPTFL) Properties() method.Properties {
	t := m.PromptFL.Properties()
	t.Synthetic = true
	return t
}
