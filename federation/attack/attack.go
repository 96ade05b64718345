package attack

import (
	"math"
	"slices"
	"strconv"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Kinds of attack. d = w - w_t is the change of the shared parameters in a client's training, γ the strength.
const (
	None = "none"
	// LabelFlip trains on the label C-1-y instead of y, for C classes (the flip of Blades, Li et al., 2024).
	LabelFlip = "label-flip"
	// SignFlip uploads w_t - γ d.
	SignFlip = "sign-flip"
	// Gaussian uploads w_t + e. Each number of e has a normal distribution of mean 0; its standard deviation is γ
	// times the root mean square of d, which adapts the noise to the scale of the parameters.
	Gaussian = "gaussian"
	// Scaled uploads w_t + γ d.
	Scaled = "scaled"
	// Backdoor trains on some images with a trigger, labelled as the target class, and uploads w_t + γ d: model
	// replacement (Bagdasaryan et al., How To Backdoor Federated Learning, AISTATS 2020, eq. 3, with γ = n/η).
	Backdoor = "backdoor"
)

// Config holds the section "attack" of a configuration.
type Config struct {
	Kind     string  `config:"kind" in:"none|label-flip|sign-flip|gaussian|scaled|backdoor"`
	Share    float64 `config:"share" in:"0..1" help:"share of the training clients that attack, drawn from the seed"`
	Clients  []int   `config:"clients" help:"numbers of the clients that attack, in place of share"`
	Strength float64 `config:"strength" in:"0..1e6"`
	Target   int     `config:"target" help:"backdoor: number of the class that images with the trigger get"`
	Poison   float64 `config:"poison" in:"0..1"`
	Trigger  float64 `config:"trigger" in:"0..1"`
}

// LongHelp implements configtags.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"kind": "attack of a simulation's malicious clients (docs/robustness.md): none, label-flip, sign-flip, " +
			"gaussian, scaled or backdoor",
		"strength": "factor of an attacker's own update with sign-flip, scaled and backdoor; with gaussian, of noise " +
			"in units of the update's root mean square",
		"poison": "backdoor: share of an attacker's other images that carry the trigger",
		"trigger": "backdoor: side of the white square in the lower right corner of an image, as a share of the " +
			"side that the image tower sees",
	}
}

// Defaults returns the default settings.
func Defaults() Config {
	return Config{Kind: None, Share: 0.2, Strength: 10, Poison: 0.5, Trigger: 0.2}
}

// Enabled reports whether any client attacks.
func (c Config) Enabled() bool { return c.Kind != None }

// Check reports invalid settings.
func (c Config) Check() error {
	return configtags.Check("attack.", c)
}

// Attackers returns the attacking clients among the training clients, sorted.
func (c Config) Attackers(training []int, seed uint64) ([]int, error) {
	if !c.Enabled() {
		return nil, nil
	}

	out := slices.Compact(slices.Sorted(slices.Values(c.Clients)))
	for _, id := range out {
		if !slices.Contains(training, id) {
			return nil, configtags.KeyErrorf("attack.clients", "client %d does not train; %d clients train, numbered "+
				"from 0", id, len(training))
		}
	}

	if len(c.Clients) > 0 {
		return out, nil
	}

	for _, i := range method.Rand(seed, "attackers").Perm(len(training))[:data.RoundedShare(c.Share, len(training))] {
		out = append(out, training[i])
	}

	slices.Sort(out)
	return out, nil
}

// Attack holds the section "attack" and the attacking clients. The zero value has none.
type Attack struct {
	Config
	Attackers []int
	Seed      uint64
}

// IsAttacker reports whether a client attacks.
func (a Attack) IsAttacker(client int) bool { return slices.Contains(a.Attackers, client) }

// Labels returns the labels that a client trains on: its own, or the flipped ones.
func (a Attack) Labels(client int, own []int64, classes int) []int64 {
	if a.Kind != LabelFlip || !a.IsAttacker(client) {
		return own
	}

	out := slices.Clone(own)
	for i, y := range own {
		out[i] = int64(classes) - 1 - y
	}

	return out
}

// Poisoned returns the sorted indices of a client's examples with the trigger. They are drawn from the examples whose
// label is not the target; their share is rounded to the nearest number.
func (a Attack) Poisoned(client int, labels []int64) []int {
	if a.Kind != Backdoor || !a.IsAttacker(client) {
		return nil
	}

	others := slices.DeleteFunc(tensor.Indices(len(labels)), func(i int) bool { return labels[i] == int64(a.Target) })
	n := data.RoundedShare(a.Poison, len(others))
	method.Rand(a.Seed, "poisoned", strconv.Itoa(client)).Shuffle(len(others), func(i, j int) {
		others[i], others[j] = others[j], others[i]
	})
	slices.Sort(others[:n])
	return others[:n]
}

// Upload changes the shared parameters of an attacker's upload, given the received parameters. It keeps the other
// tensors. The client itself continues from its true parameters. A trace records the noise as attack/NAME.
func (a Attack) Upload(round int, received tensor.Map, up *method.Upload, draws *method.Draws) {
	if !a.IsAttacker(up.Client) || a.Kind == LabelFlip || !a.Enabled() {
		return
	}

	out := tensor.Map{}
	factor := a.Strength
	if a.Kind == SignFlip {
		factor = -factor
	}

	r := method.Rand(a.Seed, "attack", strconv.Itoa(round), strconv.Itoa(up.Client))
	std := a.Strength * moved(received, up.Shared)
	for _, name := range up.Shared.Names() {
		now, old := up.Shared[name], received[name]
		out[name] = tensor.New(now.Shape...)
		var noise []float64
		if a.Kind == Gaussian {
			noise = draws.Normal(r, "attack/"+name, now.Shape...)
		}
		for i, v := range now.Data {
			d := factor * (float64(v) - float64(old.Data[i]))
			if noise != nil {
				d = std * noise[i]
			}
			out[name].Data[i] = float32(float64(old.Data[i]) + d)
		}
	}

	up.Shared = out
}

// moved returns the root mean square of the differences of all numbers.
func moved(old, now tensor.Map) float64 {
	sum, n := 0.0, 0
	for _, name := range now.Names() {
		for i, v := range now[name].Data {
			d := float64(v) - float64(old[name].Data[i])
			sum += d * d
		}
		n += now[name].Len()
	}

	return math.Sqrt(sum / float64(max(1, n)))
}
