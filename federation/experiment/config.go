// Package experiment turns a configuration into a running federation: it opens the data and the backbones, hands the
// examples out to clients, computes features and builds the method.
package experiment

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"promptfed/federation/attack"
	"promptfed/federation/data"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simtime"
	"promptfed/federation/partition"
	"promptfed/federation/secure"
	"promptfed/federation/sets"
	"promptfed/runtime/optim"
)

// Config is a configuration file. The tags are its keys.
type Config struct {
	Name          string           `config:"name" help:"of the run, and of its folder"`
	Seed          uint64           `config:"seed" help:"of everything drawn at random"`
	Backbones     []string         `config:"backbones"`
	Assign        string           `config:"assign" help:"of backbones to clients: cycle, or random"`
	Method        string           `config:"method" help:"one of promptfed list methods"`
	With          []string         `config:"with" help:"wrappers, inner to outer"`
	Options       map[string]any   `config:"options" help:"of the method and its wrappers"`
	Data          Data             `config:"data"`
	Synthetic     Synthetic        `config:"synthetic"`
	Partition     partition.Config `config:"partition"`
	Train         Train            `config:"train"`
	Participation float64          `config:"participation" help:"share of clients that train in a round"`
	Sampling      string           `config:"sampling"`
	Attack        attack.Config    `config:"attack"`
	Eval          Eval             `config:"eval"`

	SimulatedTime     simtime.Config `config:"simulated_time"`
	SecureAggregation secure.Config  `config:"secure_aggregation"`

	Reproduce Reproduce `config:"reproduce"`
	Runtime   Runtime   `config:"runtime"`
}

// LongHelp implements keys.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"backbones": "names or folders of bundles, dealt out to clients in turn; of exported models also {image: " +
			"FOLDER, text: FOLDER} or {folder: FOLDER, variant: fp16}, with logit_scale and logit_bias where no file " +
			"tells them",
		"sampling": "of a round's clients: fixed (always that share), or poisson (each by itself with that " +
			"probability; needs a method that accepts a round without clients, as differential privacy can)",
	}
}

// Data is the section data.
type Data struct {
	sets.Config `config:",squash"`
	Classes     string          `config:"classes"`
	Duplicates  string          `config:"duplicates"`
	Precision   string          `config:"precision"`
	Template    string          `config:"template" help:"hand-written prompt, {} is the class; auto: CoOp's for the set"`
	ValShare    float64         `config:"val_share"`
	LabelNoise  data.LabelNoise `config:"label_noise"`
}

// LongHelp implements keys.LongHelp.
func (Data) LongHelp() map[string]string {
	return map[string]string{
		"classes": "all, base (the first half, as in CoOp) or new (the others); both halves are evaluation sets " +
			"then (docs/evaluation.md)",
		"duplicates": "images with equal bytes in train and test (or val): keep with a note, drop them from train, " +
			"or error",
		"precision": "of features in the cache: half (rounded, two bytes a number) or float (as computed, four)",
		"val_share": "share of its training examples that a client keeps for validation, at most 0.5, where the " +
			"data has no validation images; 0 for none",
	}
}

const (
	autoTemplate = "auto" // stands for the template of the set
	allClasses   = "all"
)

// Values of eval.select and eval.confusion.
const (
	lastRound = "last"
	BestVal   = "best-val"
	localOnly = "local"
	everyone  = "all"
	nobody    = "none"
)

// What fits labels.
const (
	softmaxLoss = "softmax"
	sigmoidLoss = "sigmoid"
)

// Train is the section train.
type Train struct {
	Rounds      int            `config:"rounds" help:"times that clients train and the server merges"`
	Epochs      int            `config:"epochs" help:"passes over the local data in a round"`
	Batch       int            `config:"batch" help:"examples of one step"`
	Centralised bool           `config:"centralised" help:"one client trains on the examples of all: an upper bound"`
	DropLast    bool           `config:"drop_last" help:"leave out a last batch that is not full"`
	Loss        string         `config:"loss"`
	Optimizer   string         `config:"optimizer" help:"sgd, adam or adamw"`
	LR          float64        `config:"lr" help:"learning rate, before the schedule"`
	State       string         `config:"optimizer_state"`
	Momentum    float64        `config:"momentum" help:"of sgd; starts at 0 in a turn unless the optimizer is shared"`
	Dampening   float64        `config:"dampening" help:"of sgd's momentum"`
	Nesterov    bool           `config:"nesterov" help:"sgd looks ahead along its momentum"`
	WeightDecay float64        `config:"weight_decay"`
	Beta1       float64        `config:"beta1" help:"of adam; 0 is 0.9"`
	Beta2       float64        `config:"beta2" help:"of adam; 0 is 0.999"`
	Eps         float64        `config:"eps" help:"of adam; 0 is 1e-8"`
	ClipNorm    float64        `config:"clip_norm" help:"largest norm of all gradients together; 0 for none"`
	ClipValue   float64        `config:"clip_value" help:"largest entry of a gradient; 0 for none"`
	Patience    int            `config:"patience"`
	Memory      float64        `config:"memory_gb"`
	Each        Overrides      `config:"each"`
	Schedule    optim.Schedule `config:"schedule" help:"of lr over rounds"`
}

// LongHelp implements keys.LongHelp.
func (Train) LongHelp() map[string]string {
	return map[string]string{
		"optimizer_state": "fresh: every turn of a client starts with a new optimizer; shared: one goes from client " +
			"to client with its momentum, as in public code of FedOTP, FedPGP and pFedMoAP; clients then train one " +
			"after the other, in one process",
		"loss": "what fits labels: softmax, over all classes; sigmoid, for each class by itself, with the backbone's " +
			"logit_bias, as SigLIP was trained",
		"weight_decay": "added to the gradient as in PyTorch; of adamw, taken off the parameter",
		"patience":     "stop after so many tested rounds without a better validation accuracy; 0 to train all rounds",
		"memory_gb": "bound on what a step through the image tower, or with a text prompt for each image, computes " +
			"at a time, in each worker; more of a batch follows in parts",
	}
}

// Eval is the section eval.
type Eval struct {
	Every int `config:"every" help:"rounds between tests; the last round is always tested"`
	Last  int `config:"last" help:"rounds whose mean is shown as the result"`
	// View is spec.Plan.View.
	View string `config:"view"`
	// What is tested beside a client's test data, and which round counts.
	Validate   bool     `config:"validate" help:"test the clients' validation data too in every tested round"`
	Select     string   `config:"select"`
	Sets       []string `config:"sets"`
	SetsRoot   string   `config:"sets_root" help:"folder of those sets, as data.root; empty for data.root"`
	SetsEvery  int      `config:"sets_every"`
	NewClients int      `config:"new_clients"`
	NewSteps   []int    `config:"new_steps"`
	FineTune   int      `config:"fine_tune"`
	// Target is read by reports; it changes nothing that is computed.
	Target    float64 `config:"target"`
	Confusion string  `config:"confusion"`
	ZeroShot  bool    `config:"zero_shot"`
	// Terms changes nothing that is trained.
	Terms bool `config:"terms"`
	// TensorBoard is read by the command; it changes nothing that is computed.
	TensorBoard bool `config:"tensorboard" help:"write rounds as TensorBoard reads them too, into tensorboard/"`
	// Embeddings bounds the images of embeddings.safetensors.
	Embeddings int `config:"embeddings"`
}

// LongHelp implements keys.LongHelp.
func (Eval) LongHelp() map[string]string {
	return map[string]string{
		"view": "what results are of: global (the server's parameters), personal (each client's own) or method (as " +
			"its paper says)",
		"select": "the round that is the result: last, or best-val (the best validation accuracy; its parameters " +
			"are those that are left)",
		"sets": "other data sets, each with its own classes, to test every client on: cross-data-set transfer",
		"sets_every": "rounds between tests on all evaluation sets (other sets, base and new classes, domains left " +
			"out); 0: after the last round only",
		"new_clients": "clients, drawn by the seed and numbered last, that never train and are tested after some " +
			"steps of their own",
		"new_steps": "steps that a new client takes on its own training data from the shared parameters before it " +
			"is tested",
		"fine_tune": "epochs that each client trains a copy of the server's parameters on its own training data " +
			"before its personal evaluation, which tests that copy; 0 tests what it last trained",
		"target": "accuracy in percent: tables say what it took to reach it, in rounds, bytes and parameters " +
			"(docs/report.md); 0 for none",
		"confusion": "confusion matrix of the last test: local (of clients in this process), all (clients elsewhere " +
			"send their counts of classes too) or none",
		"zero_shot": "compare hand-written prompts with chance before training, and warn where they are no better",
		"terms": "measure each term of the loss in every round: value, and length of its own gradient beside cross " +
			"entropy's; costs a backward pass for each",
		"embeddings": "test images whose features are kept beside those of the texts, for the report's map of them; " +
			"0 for none",
	}
}

// Defaults is the configuration that a file, the environment and flags change.
func Defaults() Config {
	return Config{
		Name: "run", Seed: 1, Backbones: []string{"tiny-vit-b16"}, Assign: "cycle", Method: "promptfl",
		Data: Data{Config: sets.Defaults(), Classes: "all", Duplicates: data.DuplicatesKeep, Precision: data.Half,
			Template: autoTemplate, LabelNoise: data.NoLabelNoise()},
		Synthetic: Synthetic{Config: noSynthetic(), Epochs: 10},
		Partition: partition.Defaults(),
		Train: Train{Rounds: 10, Epochs: 1, Batch: 32, Loss: softmaxLoss, Optimizer: "sgd", State: freshState,
			LR:       0.002,
			Momentum: 0.9, WeightDecay: 5e-4, Memory: 4,
			Schedule: optim.Schedule{Kind: "constant"}},
		Participation: 1,
		Sampling:      "fixed",
		Attack:        attack.Defaults(),
		Eval: Eval{Every: 1, Last: 1, View: record.MethodView, Validate: true, Select: lastRound,
			NewSteps: []int{0, 10}, Confusion: localOnly, ZeroShot: true},

		SimulatedTime:     simtime.Defaults(),
		SecureAggregation: secure.Defaults(),

		Reproduce: Reproduce{Labels: asMeant, ClassNames: asMeant},
		Runtime:   defaultRuntime(),
	}
}

// What becomes of an optimizer between turns.
const (
	freshState  = "fresh"
	sharedState = "shared"
)

// InOneProcess refuses a configuration whose clients must train in one process.
func (c Config) InOneProcess() error {
	if c.Train.State == sharedState {
		return errors.New("train.optimizer_state: shared has one optimizer go from client to client; run this " +
			"experiment in one process, or set it to fresh")
	}
	if n := c.Runtime.BatchClients; n > 1 {
		return fmt.Errorf("runtime.batch_clients: %d trains clients of one process together, here each trains by "+
			"itself; set it to 1", n)
	}
	return nil
}

// poisson draws each client of a round by itself.
const poisson = "poisson"

// noSynthetic are the defaults of a data set without a set.
func noSynthetic() sets.Config {
	c := sets.Defaults()
	c.Set = ""
	return c
}

// Check finds what is wrong with the configuration before anything is opened.
func (c Config) Check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if err := checkName(c.Name); err != nil {
		bad("name: %w", err)
	}
	if len(c.Backbones) == 0 {
		bad("backbones: empty; name at least one, see promptfed list backbones")
	}
	for _, n := range []struct {
		key   string
		value int
	}{{"train.rounds", c.Train.Rounds}, {"train.epochs", c.Train.Epochs}, {"train.batch", c.Train.Batch},
		{"eval.every", c.Eval.Every}, {"eval.last", c.Eval.Last}, {"partition.clients", c.Partition.Clients}} {
		if n.value < 1 {
			bad("%s: %d; it must be 1 or more", n.key, n.value)
		}
	}
	if !(c.Train.Memory > 0 && c.Train.Memory <= 1<<20) {
		bad("train.memory_gb: %v; it must be above 0 and at most %d", c.Train.Memory, 1<<20)
	}
	if !(c.Participation > 0 && c.Participation <= 1) {
		bad("participation: %v; it must be above 0 and at most 1", c.Participation)
	}
	errs = append(errs, data.OneOf("assign", c.Assign, "cycle", "random"),
		data.OneOf("sampling", c.Sampling, "fixed", poisson),
		data.OneOf("data.classes", c.Data.Classes, allClasses, "base", "new"),
		data.OneOf("data.duplicates", c.Data.Duplicates, data.DuplicatesKeep, data.DuplicatesDrop,
			data.DuplicatesError),
		data.OneOf("data.precision", c.Data.Precision, data.Half, data.Float),
		data.OneOf("eval.view", c.Eval.View, record.Views()...),
		data.OneOf("train.loss", c.Train.Loss, softmaxLoss, sigmoidLoss),
		data.OneOf("train.optimizer_state", c.Train.State, freshState, sharedState))
	if c.Eval.Embeddings < 0 {
		bad("eval.embeddings: %d is negative; take 0 for none", c.Eval.Embeddings)
	}
	errs = append(errs, c.checkEval())
	if c.Data.Template != autoTemplate && !strings.Contains(c.Data.Template, "{}") {
		bad("data.template: %q has no {} for the class name", c.Data.Template)
	}
	_, wrong := optim.New(c.Train.optimizer())
	if wrong != nil {
		bad("train: %w", wrong)
	}
	if c.Train.State == sharedState && c.SecureAggregation.On() {
		bad("train.optimizer_state: shared hands what one client's gradients left to the next, which secure " +
			"aggregation is there to prevent; leave one of the two out")
	}
	if _, err := c.Train.Schedule.New(c.Train.LR); err != nil && wrong == nil {
		bad("train.schedule: %w", err)
	}
	errs = append(errs, c.checkSimulatedTime(), c.Train.Each.check(), c.Runtime.check(), sets.Validate(c.Data.Config),
		c.Synthetic.check(), c.Reproduce.check(c.Data), c.Data.LabelNoise.Check(), c.Attack.Check())
	return errors.Join(errs...)
}

// longestName bounds names of runs, in bytes: a file system takes 255 for a folder, and some files are named after it.
const longestName = 200

// checkName refuses names that are no name of one folder.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("empty; the run's folder is named after it")
	case strings.HasPrefix(name, "."), strings.ContainsAny(name, `/\`), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q cannot name a folder in runs/: leave out slashes, control characters and a dot in "+
			"front; --out takes another folder", name)
	case len(name) > longestName:
		return fmt.Errorf("%d bytes are too many to name a folder; at most %d", len(name), longestName)
	}
	return nil
}

// lossTerm sets runs apart that have another loss than softmax, like an option of the method.
func (t Train) lossTerm() string {
	if t.Loss == sigmoidLoss {
		return " train.loss=" + t.Loss
	}
	return ""
}

func (t Train) optimizer() optim.Config {
	return optim.Config{Name: t.Optimizer, LR: t.LR, Momentum: t.Momentum, Dampening: t.Dampening, Nesterov: t.Nesterov,
		WeightDecay: t.WeightDecay, Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, ClipNorm: t.ClipNorm,
		ClipValue: t.ClipValue}
}

// checkSimulatedTime finds what simulated time and the rest of the configuration do not allow each other.
func (c Config) checkSimulatedTime() error {
	t := c.SimulatedTime
	errs := []error{t.Check()}
	if t.On() && c.SecureAggregation.On() {
		errs = append(errs, errors.New("simulated_time: secure aggregation needs the clients that began a round, "+
			"whenever they are done; leave one of the two out"))
	}
	if t.FedBuff.Buffer > 0 {
		if c.Sampling == poisson {
			errs = append(errs, errors.New("simulated_time.fedbuff: clients train all the time; set sampling: fixed"))
		}
		if c.Train.State == sharedState {
			errs = append(errs, errors.New("simulated_time.fedbuff: clients train side by side; set "+
				"train.optimizer_state: fresh"))
		}
	}
	return errors.Join(errs...)
}
