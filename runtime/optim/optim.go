package optim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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

// Optimizer applies transforms one after another. It is not safe for concurrent use.
type Optimizer struct {
	parts  []Transform
	slots  []string // of the state of a parameter
	state  tensor.Map
	shapes map[string][]int // of the parameters whose state fits
}

// New returns the optimizer that cfg describes, without state.
func New(cfg Config) (*Optimizer, error) {
	build, ok := builders[cfg.Name]
	if !ok {
		return nil, wrong("optimizer", "optim: unknown optimizer %q; known: %s", cfg.Name, strings.Join(Names(), ", "))
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
	With(c.clips()...).pass(out, nil)
	return out
}

// With returns an optimizer of the given transforms, in that order.
func With(parts ...Transform) *Optimizer {
	o := &Optimizer{parts: parts, state: tensor.Map{}, shapes: map[string][]int{}}
	o.slots = o.Slots()
	return o
}

// fresh returns new state of a parameter, whose floats have no values yet, with a step count for each transform.
func (o *Optimizer) fresh(name string, param *tensor.Tensor) tensor.Map {
	state := tensor.Map{}
	for _, t := range o.parts {
		for _, slot := range t.Slots {
			state[t.key(slot, name)] = tensor.Reuse(param.Shape...)
			state[t.key("step", name)] = tensor.OfInts([]int64{0}, 1)
		}
	}

	return state
}

// pass passes the updates of whole parameters through all transforms.
func (o *Optimizer) pass(updates, params tensor.Map) {
	for _, t := range o.parts {
		if t.Joint != nil {
			t.Joint(updates)
			continue
		}
		for name, update := range updates {
			o.apply(t, name, update, params[name], func(slot *tensor.Tensor) *tensor.Tensor { return slot })
		}
	}
}

// apply passes the update of a parameter, or of a part of it, through one transform; part returns this part of a slot.
func (o *Optimizer) apply(t Transform, name string, update, param *tensor.Tensor,
	part func(slot *tensor.Tensor) *tensor.Tensor) {
	step := int64(0)
	slots := make([]*tensor.Tensor, len(t.Slots))
	for i, slot := range t.Slots {
		slots[i], step = part(o.state[t.key(slot, name)]), o.state[t.key("step", name)].Ints[0]
	}
	t.Update(update, param, slots, step)
}

// Step computes updates u from grads and subtracts lr u from the parameters of the same names, in place. Parameters
// without a gradient, and their state, do not change. grads is not changed. An error about names, shapes or rates
// changes nothing. After an error about a gradient, an update or a parameter that is not finite, parameters and state
// are of no use: a part of them is updated.
func (o *Optimizer) Step(params, grads tensor.Map, lr float64) error {
	return o.StepFrom(nil, params, grads, lr, nil)
}

// StepFrom is Step with separate learning rates for some parameters, by name, like parameter groups of PyTorch's
// optimizers. Their weight decay uses the same rate. A parameter in before has its values from before the step there;
// its tensor in params is only written.
func (o *Optimizer) StepFrom(before, params, grads tensor.Map, lr float64, own map[string]float64) error {
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
		if shape, ok := o.shapes[name]; !ok || !slices.Equal(shape, p.Shape) {
			fresh[name] = p
		}
	}

	created, err := o.start(fresh)
	if err != nil {
		return err
	}

	for name := range grads {
		for _, slot := range o.slots {
			if t := o.state[slot+name]; t.IsInt() {
				t.Ints[0]++
			}
		}
	}

	var updates tensor.Map // where an element of an update depends on others
	if slices.ContainsFunc(o.parts, func(t Transform) bool { return t.Joint != nil }) {
		for _, name := range grads.Names() {
			if i := grads[name].NonFinite(); i >= 0 {
				return fmt.Errorf(badGradient, name, grads[name].Data[i], i)
			}
			for _, slot := range o.slots {
				if created[name] {
					clear(o.state[slot+name].Data)
				}
			}
		}

		updates = grads.Clone()
		now := maps.Clone(params)
		maps.Copy(now, before)
		o.pass(updates, now)
	}

	var mu sync.Mutex
	first, wrong := grads.Count(), error(nil)
	names := grads.Names()
	tensor.InParts(first, func(from, to int) {
		at := 0 // where a parameter begins among all numbers
		for _, name := range names {
			rate, ok := own[name]
			if !ok {
				rate = lr
			}

			end := at + len(grads[name].Data)
			if a, b := max(from, at), min(to, end); a < b {
				err := o.update(name, before[name], params[name], grads[name], updates[name], rate, created[name],
					a-at, b-at)
				mu.Lock()
				if err != nil && a < first {
					first, wrong = a, err
				}
				mu.Unlock()
			}

			at = end
		}
	})

	return wrong
}

// ErrParameter is wrapped by the error of a step whose gradients and updates are finite, but not a parameter.
var ErrParameter = errors.New("parameter")

const badGradient = "the gradient of %s holds %v at element %d"

// update updates elements [from,to) of a parameter, at most a part: they pass all transforms, unless their update is
// known, and are checked in a core's cache. The parameter has no values yet where before has them, and its state has
// none where it was created. A gradient or an update that is not finite makes a parameter that is not finite.
func (o *Optimizer) update(name string, before, param, grad, update *tensor.Tensor, rate float64, created bool,
	from, to int) error {
	part := func(t *tensor.Tensor) *tensor.Tensor {
		if t == nil || t.IsInt() {
			return t
		}
		return &tensor.Tensor{Shape: t.Shape, Data: t.Data[from:to]}
	}

	parameter, gradient, now := part(param), part(grad), part(update)
	if before != nil {
		copy(parameter.Data, before.Data[from:to])
	}

	if update == nil {
		room := rooms.Get().(*tensor.Tensor)
		defer rooms.Put(room)
		now = &tensor.Tensor{Shape: gradient.Shape, Data: room.Data[:copy(room.Data, gradient.Data)]}
		for _, slot := range o.slots {
			if created {
				clear(part(o.state[slot+name]).Data)
			}
		}
		for _, t := range o.parts {
			o.apply(t, name, now, parameter, part)
		}
	}

	parameter.Axpy(-rate, now)
	if parameter.NonFinite() < 0 {
		return nil
	}

	if i := gradient.NonFinite(); i >= 0 {
		return fmt.Errorf(badGradient, name, gradient.Data[i], from+i)
	}

	if i := now.NonFinite(); i >= 0 {
		return fmt.Errorf("optim: update of %q is %v at element %d; its gradient or its state is too large", name,
			now.Data[i], from+i)
	}

	i := parameter.NonFinite()
	return fmt.Errorf("%w %s holds %v at element %d", ErrParameter, name, parameter.Data[i], from+i)
}

// rooms has memory for the update of a part.
var rooms = sync.Pool{New: func() any { return tensor.New(tensor.Part) }}

// start creates state for new parameters, whose floats have no values yet, and rejects state that does not fit. It
// returns the parameters that had no state.
func (o *Optimizer) start(params tensor.Map) (map[string]bool, error) {
	fresh, created := tensor.Map{}, map[string]bool{}
	for _, name := range params.Names() {
		state := o.fresh(name, params[name])
		for _, key := range state.Names() {
			if old, ok := o.state[key]; !ok {
				fresh[key], created[name] = state[key], true
			} else if !old.SameShape(state[key]) {
				return nil, fmt.Errorf("optim: state %q is %v, the parameters need %v; start without state", key, old,
					state[key])
			}
		}
	}

	maps.Copy(o.state, fresh)
	for name, p := range params {
		o.shapes[name] = slices.Clone(p.Shape)
	}

	return created, nil
}

// Reset forgets the state, and gives its memory to later tensors.
func (o *Optimizer) Reset() {
	for _, t := range o.state {
		t.Release()
	}
	clear(o.state)
	clear(o.shapes)
}

// State returns a copy of the state: momenta and step counts, named TRANSFORM/SLOT/PARAMETER. It is empty before the
// first step.
func (o *Optimizer) State() tensor.Map { return o.state.Clone() }

// Load replaces the state by a copy of state, which State returned from an optimizer with the same Config. Later steps
// are the same, bit for bit, as without the interruption. After an error the state is unchanged.
func (o *Optimizer) Load(state tensor.Map) error {
	names := tensor.Map{}
	known := o.fresh("", tensor.New())
	for _, key := range state.Names() {
		saved := state[key]
		slot, name, ok := splitKey(key, known)
		if !ok {
			return fmt.Errorf("optim: state %q is not of this optimizer, which keeps %s", key, describe(known))
		}

		if saved == nil || saved.Len() != tensor.Size(saved.Shape) || saved.IsInt() != known[slot].IsInt() {
			return fmt.Errorf("optim: state %q is %v with a wrong kind or number of elements", key, saved)
		}

		if saved.IsInt() && (len(saved.Ints) != 1 || saved.Ints[0] < 0) {
			return fmt.Errorf("optim: state %q is %v; it must be one step count, 0 or more", key, saved.Ints)
		}

		if i := saved.NonFinite(); i >= 0 {
			return fmt.Errorf("optim: state %q holds %v at element %d", key, saved.Data[i], i)
		}

		names[name] = saved
	}

	for _, name := range names.Names() {
		for _, slot := range known.Names() {
			if _, ok := state[slot+name]; !ok {
				return fmt.Errorf("optim: state %q is missing for parameter %q", slot+name, name)
			}
		}
	}

	o.state = state.Clone()
	clear(o.shapes)
	return nil
}

// Slots returns the prefixes of state names, such as "momentum/b/", before the name of a parameter; none without state.
func (o *Optimizer) Slots() []string { return o.fresh("", tensor.New()).Names() }

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
