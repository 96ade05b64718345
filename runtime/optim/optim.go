package optim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"promptfed/runtime/tensor"
)

// Config describes an optimizer. A zero Beta1, Beta2 or Eps means PyTorch's default (0.9, 0.999, 1e-8); every other
// zero is a value.
type Config struct {
	Name     string  `config:"name"`     // one of Names
	LR       float64 `config:"lr"`       // base learning rate, at which a Schedule starts
	Momentum float64 `config:"momentum"` // sgd
	// sgd: factor 1-dampening of the gradient in the momentum, except in the first step
	Dampening   float64 `config:"dampening"`
	WeightDecay float64 `config:"weight_decay"` // added to the gradient (sgd, adam) or to the update (adamw)
	Nesterov    bool    `config:"nesterov"`     // sgd: needs momentum and no dampening
	Beta1       float64 `config:"beta1"`        // adam, adamw
	Beta2       float64 `config:"beta2"`        // adam, adamw
	Eps         float64 `config:"eps"`          // adam, adamw
	ClipNorm    float64 `config:"clip_norm"`    // largest Euclidean norm of all gradients together; 0 for no limit
	// largest absolute value of a gradient's element, before ClipNorm; 0 for no limit
	ClipValue float64 `config:"clip_value"`
}

var builders = map[string]func(Config) ([]Transform, error){"sgd": sgd, "adam": adam(false), "adamw": adam(true)}

// Names lists the optimizers in sorted order.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Optimizer applies a chain of transforms. It is not safe for concurrent use.
type Optimizer struct {
	chain  Transform
	slots  []string // of the state of a parameter
	state  tensor.Map
	spare  tensor.Map       // memory for new state
	shapes map[string][]int // of the parameters whose state fits
	room   tensor.Map       // memory for the updates of a step
}

// New returns the optimizer that cfg describes, without state.
func New(cfg Config) (*Optimizer, error) {
	build, ok := builders[cfg.Name]
	if !ok {
		return nil, fmt.Errorf("optim: unknown optimizer %q; known: %s", cfg.Name, strings.Join(Names(), ", "))
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("optim: %s: %w", cfg.Name, err)
	}
	core, err := build(cfg)
	if err != nil {
		return nil, fmt.Errorf("optim: %s: %w", cfg.Name, err)
	}
	return With(append(cfg.clips(), core...)...), nil
}

func (c Config) clips() (parts []Transform) {
	if c.ClipValue > 0 {
		parts = append(parts, ClipByValue(c.ClipValue))
	}
	if c.ClipNorm > 0 {
		parts = append(parts, ClipByGlobalNorm(c.ClipNorm))
	}
	return parts
}

// Clipped returns a copy of grads after clipping, the input of momentum or moments.
func (c Config) Clipped(grads tensor.Map) tensor.Map {
	out := grads.Clone()
	Chain(c.clips()...).Update(out, nil, nil)
	return out
}

// With returns an optimizer of the given transforms, in that order.
func With(parts ...Transform) *Optimizer {
	o := &Optimizer{chain: Chain(parts...), state: tensor.Map{}, shapes: map[string][]int{}, room: tensor.Map{}}
	o.slots = o.Slots()
	return o
}

// Step computes updates u from grads and subtracts lr u from the parameters of the same names, in place. Parameters
// without a gradient, and their state, do not change. grads is not changed. After an error the parameters are
// unchanged, and so is the state, unless an update is not finite.
func (o *Optimizer) Step(params, grads tensor.Map, lr float64) error {
	return o.StepAt(params, grads, lr, nil)
}

// StepAt is Step with separate learning rates for some parameters, by name, like parameter groups of PyTorch's
// optimizers. Their weight decay uses the same rate.
func (o *Optimizer) StepAt(params, grads tensor.Map, lr float64, own map[string]float64) error {
	for _, r := range append(slices.Collect(maps.Values(own)), lr) {
		if !finite(r) {
			return fmt.Errorf("optim: learning rate is %v; it must be finite", r)
		}
	}
	fresh := tensor.Map{}
	for _, name := range grads.Names() {
		p, g := params[name], grads[name]
		switch {
		case p == nil:
			return fmt.Errorf("optim: gradient %q has no parameter of that name", name)
		case g == nil || p.IsInt() || !p.SameShape(g) || len(p.Data) != len(g.Data):
			return fmt.Errorf("optim: parameter %q is %v, its gradient %v; both must be float and of one shape", name,
				p, g)
		}
		if i := g.NonFinite(); i >= 0 {
			return fmt.Errorf("the gradient of %s holds %v at element %d", name, g.Data[i], i)
		}
		if shape, ok := o.shapes[name]; !ok || !slices.Equal(shape, p.Shape) {
			fresh[name] = p
		}
	}
	if err := o.start(fresh); err != nil {
		return err
	}
	updates := tensor.Map{} // they reuse the memory of the last step where it fits
	for name, g := range grads {
		u := o.room[name]
		if u == nil || !u.SameShape(g) {
			u = tensor.New(g.Shape...)
			o.room[name] = u
		}
		updates[name] = u
		for _, slot := range o.slots {
			if t := o.state[slot+name]; t.IsInt() {
				t.Ints[0]++
			}
		}
	}
	if o.chain.joint {
		for name, u := range updates {
			copy(u.Data, grads[name].Data)
		}
		o.chain.Update(updates, o.state, params)
	}
	for _, name := range updates.Names() {
		if !o.chain.joint && o.update(name, updates[name], grads[name], params[name]) {
			continue // every element is finite
		}
		if i := updates[name].NonFinite(); i >= 0 {
			return fmt.Errorf("optim: update of %q is %v at element %d; its gradient or its state is too large", name,
				updates[name].Data[i], i)
		}
	}
	for _, name := range updates.Names() {
		rate, ok := own[name]
		if !ok {
			rate = lr
		}
		params[name].Axpy(-rate, updates[name])
	}
	return nil
}

// update computes the update u of one parameter, part by part: a part passes through the chain in a core's cache. It
// reports whether the update is finite.
func (o *Optimizer) update(name string, u, grad, param *tensor.Tensor) bool {
	var infinite atomic.Bool
	tensor.InParts(len(u.Data), func(from, to int) {
		part := func(t *tensor.Tensor) *tensor.Tensor {
			if t.IsInt() {
				return t
			}
			return &tensor.Tensor{Shape: t.Shape, Data: t.Data[from:to]}
		}
		state := tensor.Map{}
		for _, slot := range o.slots {
			state[slot+name] = part(o.state[slot+name])
		}
		now := part(u)
		copy(now.Data, grad.Data[from:to])
		o.chain.Update(tensor.Map{name: now}, state, tensor.Map{name: part(param)})
		if now.NonFinite() >= 0 {
			infinite.Store(true)
		}
	})
	return !infinite.Load()
}

// start creates state for new parameters, and rejects state that does not fit.
func (o *Optimizer) start(params tensor.Map) error {
	if len(params) == 0 {
		return nil
	}
	fresh := o.chain.Init(o.reused(params))
	for _, key := range fresh.Names() {
		if old, ok := o.state[key]; ok && !old.SameShape(fresh[key]) {
			return fmt.Errorf("optim: state %q is %v, the parameters need %v; start without state", key, old,
				fresh[key])
		}
	}
	for key, t := range fresh {
		if _, ok := o.state[key]; !ok {
			o.state[key] = t
		}
	}
	for name, p := range params {
		o.shapes[name] = slices.Clone(p.Shape)
	}
	return nil
}

// Reset forgets the state. Later steps are those of a new optimizer in the memory of this one.
func (o *Optimizer) Reset() {
	o.state, o.spare = tensor.Map{}, o.state
	clear(o.shapes)
}

// reused gives parameters without state that of before Reset, zeroed. It returns the parameters that it does not fit.
func (o *Optimizer) reused(params tensor.Map) tensor.Map {
	others := tensor.Map{}
	for name, p := range params {
		if slices.ContainsFunc(o.slots, func(slot string) bool {
			t := o.spare[slot+name]
			return t == nil || !t.IsInt() && !t.SameShape(p) || o.state[slot+name] != nil
		}) {
			others[name] = p
			continue
		}
		for _, slot := range o.slots {
			t := o.spare[slot+name]
			clear(t.Data)
			clear(t.Ints)
			o.state[slot+name] = t
			delete(o.spare, slot+name)
		}
	}
	return others
}

// State returns a copy of the state: momenta and step counts, named TRANSFORM/SLOT/PARAMETER. It is empty before the
// first step.
func (o *Optimizer) State() tensor.Map { return o.state.Clone() }

// Load replaces the state by a copy of s, which State returned from an optimizer with the same Config. Later steps are
// the same, bit for bit, as without the interruption. After an error the state is unchanged.
func (o *Optimizer) Load(s tensor.Map) error {
	names := tensor.Map{}
	known := o.chain.Init(tensor.Map{"": tensor.New()})
	for _, key := range s.Names() {
		t := s[key]
		slot, name, ok := splitKey(key, known)
		if !ok {
			return fmt.Errorf("optim: state %q is not of this optimizer, which keeps %s", key, describe(known))
		}
		if t == nil || t.Len() != tensor.Size(t.Shape) || t.IsInt() != known[slot].IsInt() {
			return fmt.Errorf("optim: state %q is %v with a wrong kind or number of elements", key, t)
		}
		if t.IsInt() && (len(t.Ints) != 1 || t.Ints[0] < 0) {
			return fmt.Errorf("optim: state %q is %v; it must be one step count, 0 or more", key, t.Ints)
		}
		if i := t.NonFinite(); i >= 0 {
			return fmt.Errorf("optim: state %q holds %v at element %d", key, t.Data[i], i)
		}
		names[name] = t
	}
	for _, name := range names.Names() {
		for _, slot := range known.Names() {
			if _, ok := s[slot+name]; !ok {
				return fmt.Errorf("optim: state %q is missing for parameter %q", slot+name, name)
			}
		}
	}
	o.state = s.Clone()
	clear(o.shapes)
	return nil
}

// Slots returns the prefixes of state names, such as "momentum/b/", before the name of a parameter; none without state.
func (o *Optimizer) Slots() []string { return o.chain.Init(tensor.Map{"": tensor.New()}).Names() }

// splitKey returns the slot in known that is a prefix of key, such as "adam/m/", and the parameter name after it.
func splitKey(key string, known tensor.Map) (slot, name string, ok bool) {
	for _, slot := range known.Names() {
		if name, ok := strings.CutPrefix(key, slot); ok && name != "" {
			return slot, name, true
		}
	}
	return "", "", false
}

func describe(known tensor.Map) string {
	if len(known) == 0 {
		return "no state"
	}
	return strings.Join(known.Names(), "NAME, ") + "NAME"
}
