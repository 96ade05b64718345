package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/attack"
	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/programs"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/numerics"
	"promptfed/runtime/ort"
)

// Task is an experiment that this machine can run: it has been checked as far as no image is needed.
type Task struct {
	Protocol   *Protocol
	Data       *Data
	Backbones  *Backbones
	Experiment *spec.Experiment // of Protocol, with what data and backbones add; Federate adds the clients
	Info       DataInfo         // of Data, with notes about method and backbones
	// Runtime is the section runtime with the provider that it chose; Fallback is why auto chose the CPU.
	Runtime  Runtime
	Fallback error

	Programs *programs.Folder // of runtime.programs; nil for none

	place     ClientPlace    // of the one client that is here; zero for an experiment in one process
	synthetic []data.Example // of the server's own
}

// Open opens the experiment of a configuration, with all of its clients, and chooses the provider. It computes no
// features.
func Open(ctx context.Context, c Config, progress Progress) (*Task, error) {
	return openTask(ctx, c, opening{}, progress)
}

// OpenValidation is Open with the validation images of every set in place of its test images, which nothing reads: what
// compares methods in order to choose one must not know the test images.
func OpenValidation(ctx context.Context, c Config, progress Progress) (*Task, error) {
	return openTask(ctx, c, opening{validation: true}, progress)
}

// opening says which part of an experiment a task has.
type opening struct {
	role       role
	place      ClientPlace // of the one client that is here; zero for all clients
	validation bool        // validation images stand in place of test images
}

func openTask(ctx context.Context, c Config, part opening, progress Progress) (*Task, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}

	c.Runtime.Session().Preload() // while the data are opened
	content, err := part.openData(ctx, c, progress)
	if err != nil {
		return nil, err
	}

	place := part.place
	if n := content.clients(); place.Of > 0 && place.Of != n {
		return nil, fmt.Errorf("the partition has %d clients, but the server has %d; use the data, partition and seed "+
			"that the server was started with", n, place.Of)
	}

	protocol, err := newProtocol(content.config, members{role: part.role, clients: content.clients(),
		classes: content.Set.Classes, seededNoise: place.SeededNoise})
	if err != nil {
		return nil, err
	}

	if part.role == remoteSide { // the server chose names and places for them
		if err := protocol.Experiment.RunSpec().CheckSizes(); err != nil {
			return nil, fmt.Errorf("the server's classes and template: %w", err)
		}
	}

	backbones, err := OpenBackbones(ctx, protocol.Config, len(content.Parts), progress)
	if err != nil {
		return nil, err
	}

	experiment := *protocol.Experiment
	experiment.Digests = map[string]string{}
	for _, f := range backbones.Distinct {
		experiment.Digests[f.Name] = f.Digest()
	}

	task := &Task{Protocol: protocol, Data: content, Backbones: backbones, Experiment: &experiment, Info: content.Info,
		Runtime: protocol.Config.Runtime, place: place}
	for _, step := range []func() error{task.describe, task.centralise, task.fit, task.openSynthetic,
		task.chooseProvider, task.openPrograms, task.chooseBatchClients} {
		if err := step(); err != nil {
			return nil, err
		}
	}

	return task, nil
}

// fit checks that the backbones fit the experiment.
func (t *Task) fit() error {
	return fits(t.Experiment, t.Backbones.Assigned, t.place, t.Protocol.Config.Options)
}

// chooseProvider chooses the provider of runtime.provider: auto.
func (t *Task) chooseProvider() (err error) {
	if t.Fallback, err = t.Runtime.ChooseProvider(); err != nil {
		return MachineError{err}
	}
	return nil
}

// openPrograms opens the folder of runtime.programs. Its graphs are those of one client alone.
func (t *Task) openPrograms() (err error) {
	dir := t.Runtime.Programs
	switch {
	case dir == "":
		return nil
	case t.Runtime.BatchClients > 1:
		return configtags.KeyErrorf("runtime.batch_clients", "%d computes the steps of several clients in one graph, "+
			"but runtime.programs has those of one client; set it to 1", t.Runtime.BatchClients)
	}

	t.Protocol.Config.Runtime.BatchClients = 1
	if t.Programs, err = programs.Open(dir, t.Experiment.Digests); err != nil {
		return configtags.KeyErrorf("runtime.programs", "%w", err)
	}

	return nil
}

// Numerics returns what may change a bit of the results on this machine.
func (t *Task) Numerics() (numerics.Fingerprint, error) {
	f, err := t.Runtime.Session().Fingerprint()
	if t.Programs != nil {
		f.Programs = t.Programs.Digest
	}
	return f, err
}

// chooseBatchClients sets runtime.batch_clients where the configuration leaves it to the program. The choice depends on
// the configuration and the provider alone, since it is part of the experiment.
func (t *Task) chooseBatchClients() error {
	protocol := t.Protocol
	if protocol.Config.Runtime.BatchClients > 0 {
		return nil
	}

	most := 1
	for _, b := range t.Backbones.Distinct {
		if t.Runtime.Provider == ort.CPU {
			break
		}
		n, err := t.Experiment.ClientsAtOnce(Backbone{b})
		if err != nil {
			return fmt.Errorf("backbone %s: %w", b.Name, err)
		}
		if n > 1 && (most == 1 || n < most) { // clients on the others train separately
			most = n
		}
	}

	if most > 1 {
		t.Info.Notes = append(t.Info.Notes, fmt.Sprintf("up to %d clients train in one run; runtime.batch_clients "+
			"sets another number", most))
	}

	protocol.Config.Runtime.BatchClients, t.Runtime.BatchClients = most, most
	protocol.Experiment.BatchClients, t.Experiment.BatchClients = most, most
	return nil
}

func (o opening) openData(ctx context.Context, c Config, progress Progress) (*Data, error) {
	if o.place.alone() {
		return openOwn(ctx, c, o.place, progress)
	}
	return openData(ctx, c, o.validation, progress)
}

// describe adds notes about the method and the backbones. A backbone whose steps need more memory than
// train.memory_gb is an error.
func (t *Task) describe() error {
	config, experiment := t.Protocol.Config, t.Experiment
	notes := append(slices.Clone(t.Info.Notes), methods.Notes(experiment.Method)...)
	if line := toys(t.Backbones.Distinct); line != "" {
		notes = append(notes, line)
	}

	lists := [][]string{experiment.Classes}
	for _, s := range t.Data.evaluationSets {
		lists = append(lists, s.classes)
	}

	for _, model := range t.Backbones.Distinct {
		if model.Origin.Source != "" {
			notes = append(notes, model.Name+": "+model.Origin.String())
		}

		for _, assumed := range model.Notes {
			notes = append(notes, model.Name+": "+assumed)
		}

		memory, err := memoryNote(experiment, model, config)
		if err != nil {
			return err
		}

		if memory != "" {
			notes = append(notes, model.Name+": "+memory)
		}

		alike, err := alikeNotes(model, lists)
		if err != nil {
			return err
		}

		spelled, err := spelledClasses(model, experiment.Classes)
		if err != nil {
			return err
		}

		notes = append(append(notes, alike...), spelled...)
		if why := experiment.NotBatchable(Backbone{model}); why != "" {
			notes = append(notes, fmt.Sprintf("%s: runtime.batch_clients: %d has no effect, %s", model.Name,
				config.Runtime.BatchClients, why))
		}
	}

	t.Info.Notes = notes
	return nil
}

// memoryNote returns a note on steps that are computed in parts; steps that need more than train.memory_gb are an
// error.
func memoryNote(experiment *spec.Experiment, f *bundle.Bundle, c Config) (string, error) {
	note, err := experiment.MemoryNote(Backbone{f}, c.Runtime.Session().Kernels())
	if err != nil {
		return "", fmt.Errorf("backbone %s: %w", f.Name, err)
	}
	return note, nil
}

// centralise lets client 0 alone train, on the examples of all clients: the upper bound without federation. All clients
// are still tested on their own test examples, with its parameters.
func (t *Task) centralise() error {
	if !t.Protocol.Config.Train.Centralised {
		return nil
	}

	if len(t.Backbones.Distinct) > 1 {
		return configtags.KeyErrorf("train.centralised", "one model cannot have several backbones; name only one")
	}

	m := t.Experiment.Method
	task := spec.TaskOf(Backbone{t.Backbones.Distinct[0]}, 0, len(t.Data.Parts), len(t.Experiment.Classes))
	private := func(p method.Param) bool { return p.Owner == method.Private }
	if m.View() != method.GlobalView || slices.ContainsFunc(m.Params(task), private) {
		return configtags.KeyErrorf("train.centralised", "this method tests every client with prompts of its own, "+
			"but only one client trains; use a method that tests the server's prompts, such as promptfl")
	}

	t.Experiment.Plan.Trainers = []int{0}
	return nil
}

// fits returns an error for clients whose prompts do not fit their backbone or whose shared parameters cannot be
// averaged. place is that of the one client that is here.
func fits(experiment *spec.Experiment, assigned []*bundle.Bundle, place ClientPlace, options map[string]any) error {
	seen := map[string]bool{}
	var first method.ClientSpec
	for i, model := range assigned {
		id, clients := i, len(assigned)
		if place.alone() {
			id, clients = place.Client, place.Of
		}

		task := spec.TaskOf(Backbone{model}, id, clients, len(experiment.Classes))
		key := model.Name
		for _, p := range experiment.Method.Params(task) {
			key += fmt.Sprint(" ", p.Name, p.Shape)
		}

		if seen[key] {
			continue
		}

		if len(seen) == 0 {
			first = task
		}

		seen[key] = true
		if err := message.CheckAveraged(task, first, experiment.Method); err != nil {
			return err
		}

		if err := client.CheckGraphs(experiment, Backbone{model}, id, clients); err != nil {
			return ofLength(err, options)
		}
	}

	return nil
}

// ofLength names the option with the length of a prompt that is too long, if one option alone has that value.
func ofLength(err error, options map[string]any) error {
	var names []string
	long, ok := errors.AsType[clip.LengthError](err)
	for name, value := range options {
		if ok && value == long.Tokens {
			names = append(names, name)
		}
	}

	if len(names) == 1 {
		return configtags.KeyErrorf("options."+names[0], "%w", err)
	}

	return err
}

// openSynthetic opens the server's own images, if the configuration has any.
func (t *Task) openSynthetic() (err error) {
	section := t.Protocol.Config.Synthetic
	if section.Set == "" {
		return nil
	}

	var notes []string
	if t.synthetic, notes, err = openSynthetic(section, t.Experiment.Classes); err != nil {
		return err
	}

	t.Info.Notes = append(t.Info.Notes, notes...)
	t.Experiment.Options += data.Digest(t.synthetic) + fmt.Sprint(section.Epochs)
	return nil
}

// StepBytes returns the memory of all values of a client's largest training step or test, without gradients, before
// anything is computed.
func (t *Task) StepBytes() (most float64, err error) {
	for i, f := range t.Backbones.Assigned {
		rows := max(t.Experiment.Training.Batch, len(t.Data.Parts[i].Test))
		n, err := client.StepBytes(t.Experiment, Backbone{f}, i, len(t.Backbones.Assigned), rows)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}

	return most, nil
}

// here returns the configuration with the provider that this machine uses.
func (t *Task) here() Config {
	c := t.Protocol.Config
	c.Runtime = t.Runtime
	return c
}

// Storage returns what Federate will write, and an error if there is no room for it.
func (t *Task) Storage(ctx context.Context) (features.Storage, error) {
	x, err := t.here().Extractor(nil)
	if err != nil {
		return features.Storage{}, err
	}

	validating, err := t.Data.validating()
	if err != nil {
		return features.Storage{}, err
	}

	return x.Storage(ctx, t.requests(validating))
}

func (t *Task) requests(validating bool) (out []features.Request) {
	add := func(f *bundle.Bundle, list []data.Example, views int) {
		out = append(out, t.requestsOf(f, list, views)...)
	}
	views := t.Protocol.Config.Data.Views
	for _, model := range t.Backbones.Distinct {
		add(model, t.Data.trainList(), views)
		add(model, t.Data.testList(), 1)
		if validating {
			add(model, t.Data.valList(), 1)
		}
		for _, s := range t.Data.evaluationSets {
			add(model, s.examples, 1)
		}
		for i := range t.Data.Parts {
			if list, _ := t.poisoned(i); t.Backbones.Assigned[i] == model && len(list) > 0 {
				add(model, list, views)
			}
		}
	}

	if len(t.synthetic) > 0 {
		add(t.Backbones.Distinct[0], t.synthetic, 1)
	}

	return out
}

// poisoned returns the examples with the trigger that a client of a backdoor trains on, and the indices of its own
// examples that they replace.
func (t *Task) poisoned(client int) (list []data.Example, at []int) {
	by := t.Experiment.Attack
	if by.Kind != attack.Backdoor {
		return nil, nil
	}

	labels, _ := t.Data.labels(client)
	at = by.Poisoned(client, labels)
	for _, i := range at {
		e := t.Data.trainList()[t.Data.trainedOn(client)[i]]
		list = append(list, by.Triggered(e, preprocess.Decode))
	}

	return list, at
}

// requestsOf lists the inputs that the method reads of a list of images.
func (t *Task) requestsOf(f *bundle.Bundle, list []data.Example, views int) (out []features.Request) {
	for _, what := range append(t.Experiment.Reads(Backbone{f}), method.ImageInput) {
		out = append(out, features.Request{Bundle: f, List: list, Views: views, What: what})
	}
	return out
}
