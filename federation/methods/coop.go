package methods

import "promptfed/federation/method"

// CoOp learns one text prompt on each client alone, or with class_specific one for each class; nothing is exchanged.
//
// Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022, eq. 2-3.
type CoOp struct {
	method.FedAvg
	ClassContext `config:",squash"`
}

var coopDef = Def{Name: "coop", Title: "CoOp", New: newCoOp,
	Paper: "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022"}

func newCoOp() Layer { return &CoOp{ClassContext: ClassContext{Context: defaultContext}} }

func (m *CoOp) Build(method.Method) (method.Method, error) { return *m, m.Check() }

func (m CoOp) Params(t method.ClientSpec) []method.Param { return m.Declare(t, method.Private) }
