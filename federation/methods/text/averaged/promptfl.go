package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/tensor"
)

// PromptFL averages one text prompt, or with class_specific one for each class; every client is tested with the
// average.
//
// Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts Instead of Models, TMC 2023, algorithm
// 1. Loss and layout are CoOp's (Zhou et al., IJCV 2022, eq. 2-3). No paper averages class-specific prompts.
// class_average: all is FedAvg of each prompt. owners averages the prompt of class c over the clients that have
// examples of it, see Merge.
type PromptFL struct {
	method.FedAvg
	prompts.ClassContext `config:",squash"`

	ClassAverage string `config:"class_average" in:"all|owners" help:"clients over which a class's prompt is averaged"`
}

var promptFLDef = layer.Def{Name: "promptfl", Title: "PromptFL",
	Paper:   "Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, TMC 2023",
	Traffic: layer.PromptTraffic,
	Default: promptFL}

var promptFL = PromptFL{ClassContext: prompts.ClassContext{Context: prompts.DefaultContext}, ClassAverage: "all"}

// Check refuses class_average: owners where all classes have one prompt.
func (m PromptFL) Check() error {
	if m.ClassAverage == "owners" && !m.ClassSpecific {
		return check.OptionErrorf("class_average", ": owners needs class_specific: true")
	}
	return nil
}

// Properties are FedAvg's; with class_average: owners the server needs every client's class counts, so that the mean of
// uploads is not enough.
func (m PromptFL) Properties() method.Properties {
	if m.ClassAverage == "owners" {
		return method.Properties{Needs: "every client's class counts; set class_average: all"}
	}
	return m.FedAvg.Properties()
}

// Params declares "ctx", shared: [tokens,w], or with class_specific [C,tokens,w].
func (m PromptFL) Params(t method.ClientSpec) []method.Param { return m.Declare(t, method.Shared) }

// classN names a client's number of examples of each class.
const classN = "class/n"

// Extras declares with class_average: owners "class/n" [C,1], which is n_kc, and nothing without.
func (m PromptFL) Extras(t method.ClientSpec) []method.Extra {
	if m.ClassAverage != "owners" {
		return nil
	}
	return []method.Extra{{Name: classN, Shape: []int{t.Classes, 1}, Counts: true}}
}

// Finish uploads with class_average: owners how many training examples of each class the client has.
func (m PromptFL) Finish(local *method.Local, up *method.Upload) error {
	if m.ClassAverage == "owners" {
		n := tensor.New(local.Task.Classes, 1)
		for _, y := range local.Data.Labels() {
			n.Data[y]++
		}
		up.Extra[classN] = n
	}

	return nil
}

// Merge is FedAvg. With class_average: owners it averages the prompt of class c over the clients with n_kc > 0 examples
// of it, weighted by n_kc, and leaves it unchanged where no client has any: other clients only push it away from their
// images.
func (m PromptFL) Merge(global *method.Global, ups []method.Upload) error {
	if m.ClassAverage != "owners" {
		return m.FedAvg.Merge(global, ups)
	}

	rows := func(ctx *tensor.Tensor) *tensor.Tensor {
		return tensor.Of(ctx.Data, global.Classes, ctx.Len()/global.Classes)
	}
	prompts := make([]method.Upload, len(ups))
	for i, u := range ups {
		prompts[i] = method.Upload{Client: u.Client, Extra: tensor.Map{"ctx": rows(u.Shared["ctx"]),
			classN: u.Extra[classN]}}
	}

	mean := global.Shared["ctx"].Clone()
	global.Shared = tensor.Map{"ctx": mean}
	return aggregate.RenewClassMeans(rows(mean), tensor.New(global.Classes, 1), prompts, "ctx", classN, false)
}
