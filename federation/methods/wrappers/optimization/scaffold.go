package optimization

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/tensor"
)

// SCAFFOLD corrects each local gradient of the shared parameters by the gap between the server's control variate c and
// the client's own c_i: y <- y - lr (g - c_i + c). After K steps from x the client sets c_i+ = c_i - c + (x - y)/(K lr)
// (option II) and uploads c_i+ - c_i; the server adds server_lr times the mean move to x, and 1/N of the sum of the
// differences to c, N being all clients that may train.
//
// Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020, algorithm 1, eq.
// 3-5. K counts all local steps and lr is the rate of this round's schedule. Where there is a choice:
//   - weighting: uniform is the paper's mean over the clients of a round; examples is FedAvg's, which the base method
//     has;
//   - control: gradients (ours) makes c_i+ the mean of the K gradients g themselves. path is option II as written,
//     which takes (x - y)/(K lr) for the mean of g - c_i + c, as plain SGD makes it: there the two are one. With a
//     momentum of 0.9 the path is up to ten times as long, and training diverges, while the mean of the gradients stays
//     what it is, also with weight decay or Adam;
//   - with a learning rate of 0 option II says nothing, and c_i stays.
//
// Names: scaffold/c/NAME, of the server in what it sends and of a client in what it keeps, and scaffold/dc/NAME in
// uploads.
type SCAFFOLD struct {
	method.Method
	aggregate.Weighting `config:",squash"`

	ServerLR float64 `config:"server_lr" in:"0.." help:"step size of the server towards the mean"`
	Control  string  `config:"control" in:"gradients|path" help:"control variates from"`
}

var scaffoldDef = layer.Def{Name: "scaffold", Title: "SCAFFOLD",
	Paper:   "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020",
	Suits:   layer.RequireShared,
	Default: SCAFFOLD{Weighting: aggregate.Uniform, ServerLR: 1, Control: "gradients"}}

// Properties takes the correction of drift and the start of a round, and with another server_lr than 1 the server's
// step. Weights by examples make the server need every upload, since c is a plain sum.
func (m SCAFFOLD) Properties() method.Properties {
	t := method.Properties{Mean: method.Weights(m.Weighting.Weighting), Roles: map[method.Role]string{
		method.DriftCorrection: "", method.RoundStart: ""}}
	if m.ServerLR != 1 {
		t.Roles[method.ServerStep] = "set options.scaffold.server_lr: 1"
	}

	if t.Mean != method.Uniform {
		t.Mean, t.Needs = "", "the unweighted mean of control variates; set weighting: uniform"
	}

	return t
}

// Names of control variates, of their changes, and of a round's sum of gradients while it runs.
const (
	scaffoldC     = "scaffold/c"
	scaffoldDC    = "scaffold/dc"
	scaffoldSum   = "scaffold/sum"
	scaffoldSteps = "scaffold/steps" // of a turn that moved shared parameters
)

// Start sends everyone a c of zeros, which each Merge renews.
func (m SCAFFOLD) Start(global *method.Global) error {
	zerosLike(global.Shared, global.Broadcast, scaffoldC)
	return m.Method.Start(global)
}

// Begin gives a client that trains for the first time a c_i of zeros.
func (m SCAFFOLD) Begin(local *method.Local) error {
	zerosLike(local.Shared, local.State, scaffoldC)
	return m.Method.Begin(local)
}

// AdjustGradients adds c - c_i to the gradients of shared parameters, after the layers inside adjusted them. With
// control: gradients it first adds them to the turn's sum.
func (m SCAFFOLD) AdjustGradients(local *method.Local, gradients tensor.Map) error {
	if err := m.Method.AdjustGradients(local, gradients); err != nil {
		return err
	}

	countMoving(local, scaffoldSteps)
	if m.Control == "gradients" {
		sum := local.State.WithoutPrefix(scaffoldSum)
		for name := range local.Shared {
			sum.Axpy(1, tensor.Map{name: gradients[name]})
		}
		local.State.Put(scaffoldSum, sum)
	}

	gradients.Axpy(1, local.Broadcast.WithoutPrefix(scaffoldC)).Axpy(-1, local.State.WithoutPrefix(scaffoldC))
	return nil
}

// Finish renews c_i and uploads its change, c_i+ - c_i.
func (m SCAFFOLD) Finish(local *method.Local, up *method.Upload) error {
	up.Extra.Put(scaffoldDC, m.renew(local))
	return m.Method.Finish(local, up)
}

// Extras declares scaffold/dc/NAME for each shared parameter, of its shape, beside the extras of the layers inside: an
// upload is twice as large.
func (m SCAFFOLD) Extras(t method.ClientSpec) []method.Extra {
	out := m.Method.Extras(t)
	for _, p := range m.Params(t) {
		if p.Owner == method.Shared {
			out = append(out, method.Extra{Name: scaffoldDC + "/" + p.Name, Shape: p.Shape})
		}
	}
	return out
}

// renew sets the client's control variates and returns their changes.
func (m SCAFFOLD) renew(local *method.Local) tensor.Map {
	own, steps := local.State.WithoutPrefix(scaffoldC), float64(local.Steps)
	moving, _ := local.Cache[scaffoldSteps].(int)
	dc := local.Shared.Clone().Scale(0)
	switch sum := local.State.WithoutPrefix(scaffoldSum); {
	case m.Control == "gradients" && local.Steps > 0:
		for name := range sum {
			delete(local.State, scaffoldSum+"/"+name)
		}
		dc.Axpy(1/steps, sum).Axpy(-1, own)
	case m.Control == "path" && float64(moving)*local.LR > 0:
		dc.Axpy(1, local.Received).Axpy(-1, local.Shared).Scale(1/(float64(moving)*local.LR)).Axpy(-1,
			local.Broadcast.WithoutPrefix(scaffoldC))
	}

	local.State.Put(scaffoldC, own.Axpy(1, dc))
	return dc
}

// Merge lets the layers inside average, goes server_lr of the way to the mean, and adds the changes of control variates
// over N to c. An upload that stands for several clients counts that many times.
func (m SCAFFOLD) Merge(global *method.Global, ups []method.Upload) error {
	old, err := m.Average(m.Method, global, ups)
	if err != nil {
		return err
	}

	if m.ServerLR != 1 {
		global.Shared = global.Shared.Clone().Scale(m.ServerLR).Axpy(1-m.ServerLR, old)
	}

	controls := global.Broadcast.WithoutPrefix(scaffoldC).Clone()
	for _, u := range ups {
		for _, name := range controls.Names() {
			dc, err := aggregate.Extra(u, scaffoldDC+"/"+name, controls[name].Shape...)
			if err != nil {
				return err
			}
			controls[name].Axpy(clientsOf(u)/float64(global.Sampling.Clients), dc)
		}
	}

	global.Broadcast.Put(scaffoldC, controls)
	return nil
}
