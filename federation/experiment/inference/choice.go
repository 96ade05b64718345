package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/models/bundle"
)

// Choice says which classifier of a run: one of those that its evaluations test.
type Choice struct {
	// Client is whose classifier it is, as the run's personal evaluation tests it: with what the client last trained.
	// With Global, it is the server's parameters on that client's backbone, beside its own private ones, as the global
	// evaluation tests them on it. -1 with Global is the server's for everybody, where there is one.
	Client   int
	Global   bool
	Backbone string // of Global for everybody; empty where the run has one
}

func (c Choice) view() method.View {
	if c.Global {
		return method.GlobalView
	}
	return method.PersonalView
}

func (c Choice) String() string {
	switch {
	case !c.Global:
		return fmt.Sprintf("classifier of client %d", c.Client)
	case c.Client < 0:
		return "global classifier"
	}
	return fmt.Sprintf("global classifier as of client %d", c.Client)
}

// FileName returns the name of the file of a classifier, different for each classifier of a run.
func (f *Classifier) FileName() string {
	switch {
	case !f.Global:
		return fmt.Sprintf("client-%0*d.onnx", len(strconv.Itoa(f.clients-1)), f.Client)
	case f.Backbone == "":
		return "global.onnx"
	}
	return "global-" + f.Backbone + ".onnx"
}

// All opens the classifiers of the run in dir one after the other: the global one, of each backbone, and those of the
// clients. What the run does not have of these is left out, with the reason, and so are those of several backbones that
// are not on this machine.
func All(config experiment.Config, dir string, each func(*Classifier) error) (leftOut []error, err error) {
	run, err := readRun(dir)
	if err != nil {
		return nil, err
	}

	first := run.byBackbone()
	var choices []Choice
	for _, b := range slices.Sorted(maps.Keys(first)) {
		if len(first) == 1 {
			b = ""
		}
		choices = append(choices, Choice{Client: -1, Global: true, Backbone: b})
	}

	for k, b := range run.backbones {
		if b != "" {
			choices = append(choices, Choice{Client: k})
		}
	}

	for _, choice := range choices {
		f, err := run.open(config, choice)
		elsewhere := len(first) > 1 && (errors.Is(err, bundle.ErrNotFound) || errors.Is(err, bundle.ErrNotPulled))
		if errors.Is(err, ErrNothingLearned) || errors.Is(err, ErrNotForAll) || elsewhere {
			leftOut = append(leftOut, err)
			continue
		}
		if err == nil {
			err = errors.Join(each(f), f.Close())
		}
		if err != nil {
			return leftOut, err
		}
	}

	return leftOut, nil
}

// evaluated is a method that is tested by one of the two evaluations.
type evaluated struct {
	method.Method
	view method.View
}

func (e evaluated) View() method.View { return e.view }

var (
	// ErrNothingLearned says that the run folder has no parameters of the chosen client.
	ErrNothingLearned = errors.New("it left no parameters of its own: no round trained it, or it trained on another " +
		"machine, whose run folder has them")
	// ErrNotForAll says that the method has only classifiers of single clients, since its class scores read something
	// that is not the same for all.
	ErrNotForAll = errors.New("no global classifier")
)

// finishedRun is what PromptsFile of a finished run says beside tensors.
type finishedRun struct {
	dir       string
	classes   []string
	backbones []string // of the clients; empty where they are not known
	digests   []string // of their files, likewise
	owned     []spec.LabelsOnly
}

func readRun(dir string) (*finishedRun, error) {
	path := filepath.Join(dir, record.PromptsFile)
	_, meta, err := state.ReadPrompts(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; %s must be the folder of a finished run", err, dir)
	}

	run := &finishedRun{dir: dir}
	for _, list := range []struct {
		key  string
		into any
	}{{state.MetaClasses, &run.classes}, {state.MetaBackbones, &run.backbones}, {state.MetaOwned, &run.owned},
		{state.MetaDigests, &run.digests}} {
		if err := json.Unmarshal([]byte(meta[list.key]), list.into); err != nil {
			return nil, fmt.Errorf("%s: it does not list its %s; run the experiment again", path, list.key)
		}
	}

	if len(run.owned) != len(run.backbones) || len(run.digests) != len(run.backbones) {
		return nil, fmt.Errorf("%s: it lists %d backbones of clients, the classes of %d and the digests of %d; run "+
			"the experiment again", path, len(run.backbones), len(run.owned), len(run.digests))
	}

	return run, nil
}

// byBackbone is the first client of each backbone that is known.
func (r *finishedRun) byBackbone() map[string]int {
	out := map[string]int{}
	for k, b := range slices.Backward(r.backbones) {
		if b != "" {
			out[b] = k
		}
	}
	return out
}

// clientOf is the client that a choice names, or one that stands for all.
func (r *finishedRun) clientOf(choice Choice) (int, error) {
	if choice.Client >= 0 || !choice.Global {
		if choice.Client < 0 || choice.Client >= len(r.backbones) {
			return 0, fmt.Errorf("client %d does not exist: the run has clients 0 to %d", choice.Client,
				len(r.backbones)-1)
		}
		if r.backbones[choice.Client] == "" {
			return 0, fmt.Errorf("client %d: %s has no parameters of it; use the run folder of that client",
				choice.Client, r.dir)
		}
		return choice.Client, nil
	}

	k := slices.IndexFunc(r.backbones, func(b string) bool {
		return b != "" && (choice.Backbone == "" || b == choice.Backbone)
	})

	if k < 0 {
		return 0, fmt.Errorf("%s has no clients", r.dir)
	}

	return k, nil
}

// check refuses what a run does not have.
func (r *finishedRun) check(classifier *Classifier, m method.Method, task method.ClientSpec) error {
	_, own := state.ClientParams(classifier.prompts, classifier.client.ID)
	switch {
	case classifier.Global && !classifier.has.Global:
		return fmt.Errorf("%s has %w: its class scores use nothing that the server sends; give --client K",
			classifier.config.Method, ErrNotForAll)
	case classifier.Global && classifier.Client < 0:
		return r.checkForAll(classifier, m, task)
	}

	for _, p := range m.Params(task) {
		if p.Owner == method.Private && own.Private[p.Name] == nil ||
			p.Owner == method.Shared && own.Own[p.Name] == nil && !classifier.Global {
			return fmt.Errorf("client %d of %s: %w; the server's parameters are --global", classifier.client.ID, r.dir,
				ErrNothingLearned)
		}
	}

	return nil
}

// checkForAll refuses class scores that read something of one client, or what the server sends to each another.
func (r *finishedRun) checkForAll(classifier *Classifier, base method.Method, task method.ClientSpec) error {
	refuse := func(what string) error {
		return fmt.Errorf("%s has %w for all clients: its class scores read %s; give --client K, or both flags for "+
			"the server's parameters with those of that client", classifier.config.Method, ErrNotForAll, what)
	}

	for _, own := range [][2]string{{record.ReadsPrivate, "private parameters"},
		{record.ReadsExamples, "the clients' own examples"}} {
		if slices.Contains(classifier.has.Reads, own[0]) {
			return refuse(own[1])
		}
	}

	if slices.Contains(method.Inputs(base.Logits(method.ScopeOf(base, task))), method.LocalClassesInput) {
		return refuse("which classes a client has examples of")
	}

	if first := r.byBackbone(); classifier.Backbone == "" && len(first) > 1 {
		names := slices.Sorted(maps.Keys(first))
		return fmt.Errorf("the run has backbones %v: add --client K of a client with the backbone you want, such as "+
			"--client %d for %s", names, first[names[1]], names[1])
	}

	if !slices.Contains(classifier.has.Reads, record.ReadsServer) {
		return nil
	}

	sent := classifier.prompts.WithoutPrefix(state.DownFolder + "/" + strconv.Itoa(classifier.client.ID))
	for k, b := range r.backbones {
		if b != classifier.bundle.Name || k == classifier.client.ID {
			continue
		}

		prompts, _, err := state.ReadPrompts(r.dir, k)
		if err != nil {
			return err
		}

		other := prompts.WithoutPrefix(state.DownFolder + "/" + strconv.Itoa(k))
		for _, name := range sent.Names() {
			if o, t := other[name], sent[name]; o == nil || !slices.Equal(o.Data, t.Data) ||
				!slices.Equal(o.Ints, t.Ints) {
				return refuse(name + ", which differs from client to client")
			}
		}
	}

	return nil
}
