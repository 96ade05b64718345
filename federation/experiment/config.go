package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"promptfed/federation/attack"
	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/optim"
)

// Config is a configuration file. The tags are its keys.
type Config struct {
	Name          string           `config:"name" help:"name of the run and of its folder"`
	Seed          uint64           `config:"seed" help:"seed of all random draws"`
	Backbones     []string         `config:"backbones"`
	Assign        string           `config:"assign" in:"cycle|random"`
	Method        string           `config:"method" help:"base method, see promptfed list methods"`
	With          []string         `config:"with" help:"wrappers, from inner to outer"`
	Options       map[string]any   `config:"options" help:"options of the method and its wrappers"`
	Data          DataSection      `config:"data"`
	Synthetic     Synthetic        `config:"synthetic"`
	Partition     partition.Config `config:"partition"`
	Train         Train            `config:"train"`
	Participation float64          `config:"participation" in:"0<..1" help:"share of clients that train in a round"`
	Sampling      string           `config:"sampling" in:"fixed|poisson"`
	Attack        attack.Config    `config:"attack"`
	Eval          Eval             `config:"eval"`

	SimulatedTime     simulatedtime.Config `config:"simulated_time"`
	SecureAggregation secure.Config        `config:"secure_aggregation"`

	Reproduce Reproduce `config:"reproduce"`
	Runtime   Runtime   `config:"runtime"`
}

func (Config) LongHelp() map[string]string {
	return map[string]string{
		"backbones": "names or folders of bundles, assigned to clients in turn; hf:ORG/NAME is fetched from the " +
			"Hugging Face hub (docs/models.md); for exported models also {image: FOLDER, text: FOLDER} or " +
			"{folder: FOLDER, variant: fp16}, with logit_scale and logit_bias where no file has them",
		"assign": "how clients get their backbones: cycle (in turn) or random",
		"sampling": "how a round's clients are drawn: fixed (always that share), or poisson (each client " +
			"independently with that probability; needs a method that accepts a round without clients, as " +
			"differential privacy does)",
	}
}

// DataSection is the section data.
type DataSection struct {
	sets.Config `config:",squash"`
	Shots       int             `config:"shots" in:"0.." help:"training examples per class and client; 0: all"`
	Views       int             `config:"views" in:"0..1000"`
	Classes     string          `config:"classes" in:"all|base|new"`
	Duplicates  string          `config:"duplicates" in:"keep|drop|error"`
	Precision   string          `config:"precision" in:"half|float"`
	Template    string          `config:"template"`
	ValShare    float64         `config:"val_share" in:"0..0.5"`
	LabelNoise  data.LabelNoise `config:"label_noise"`
}

func (DataSection) LongHelp() map[string]string {
	return map[string]string{
		"classes": "classes to train on: all, base (the first half, as in CoOp) or new (the second half); the other " +
			"half is an evaluation set, and with base both are (docs/evaluation.md)",
		"duplicates": "images with equal bytes in train and test (or val): keep (with a note), drop (from train) or " +
			"error",
		"precision": "precision of cached features: half (rounded to 2 bytes per number) or float (as computed, 4 " +
			"bytes)",
		"views": "augmented views per training image in the feature cache, drawn from the seed; 0 and 1: the plain " +
			"image only",
		"template": "hand-written prompt, {} stands for the class; auto: CoOp's prompt for the set",
		"val_share": "share of a client's training examples kept for validation where the data has no validation " +
			"images, at most 0.5; 0 for none",
	}
}

const (
	autoTemplate = "auto" // the template of the set
	allClasses   = "all"
)

const (
	lastRound = "last"
	BestVal   = "best-val" // the Select of the round with the best validation accuracy
	localOnly = "local"
	everyone  = "all"
	nobody    = "none"
)

const (
	softmaxLoss = "softmax"
	sigmoidLoss = "sigmoid"
)

// Train is the section train: the local steps, the rounds, and the optimizer.
type Train struct {
	Rounds      int            `config:"rounds" in:"1.." help:"number of rounds: clients train, the server merges"`
	Epochs      int            `config:"epochs" in:"1.." help:"passes over the local data in a round"`
	Batch       int            `config:"batch" in:"1.." help:"examples per step"`
	Centralised bool           `config:"centralised" help:"one client trains on all examples: an upper bound"`
	DropLast    bool           `config:"drop_last" help:"leave out a last batch that is not full"`
	Loss        string         `config:"loss" in:"softmax|sigmoid"`
	Optimizer   string         `config:"optimizer" help:"sgd, adam or adamw"`
	LR          float64        `config:"lr" help:"learning rate, before the schedule"`
	State       string         `config:"optimizer_state" in:"fresh|shared"`
	Momentum    float64        `config:"momentum" help:"momentum of sgd, reset each round unless optimizers are shared"`
	Dampening   float64        `config:"dampening" help:"dampening of sgd's momentum"`
	Nesterov    bool           `config:"nesterov" help:"Nesterov momentum in sgd"`
	WeightDecay float64        `config:"weight_decay"`
	Beta1       float64        `config:"beta1" help:"beta1 of adam and adamw; 0: 0.9"`
	Beta2       float64        `config:"beta2" help:"beta2 of adam and adamw; 0: 0.999"`
	Eps         float64        `config:"eps" help:"eps of adam and adamw; 0: 1e-8"`
	ClipNorm    float64        `config:"clip_norm" help:"largest norm of all gradients together; 0: no clipping"`
	ClipValue   float64        `config:"clip_value" help:"largest absolute value in a gradient; 0: no clipping"`
	Patience    int            `config:"patience" in:"0.."`
	Memory      float64        `config:"memory_gb" in:"0<..1048576"`
	Each        Overrides      `config:"each"`
	Schedule    optim.Schedule `config:"schedule" help:"schedule of lr over rounds"`
}

func (Train) LongHelp() map[string]string {
	return map[string]string{
		"optimizer_state": "fresh: a client starts every round with a new optimizer; shared: one optimizer with its " +
			"momentum is passed from client to client, as in public code of FedOTP, FedPGP and pFedMoAP; clients " +
			"then train one after the other, in one process",
		"loss": "loss that fits the labels: softmax (over all classes) or sigmoid (for each class separately, with " +
			"the backbone's logit_bias, as SigLIP was trained)",
		"weight_decay": "weight decay: added to the gradient as in PyTorch; with adamw, subtracted from the parameter",
		"patience":     "stop after this many tested rounds without a better validation accuracy; 0: train all rounds",
		"memory_gb": "memory in each worker for a training step; larger batches of images that have text prompts " +
			"or go through the image tower are computed in parts, and so are the classes of the text tower",
	}
}

// Eval is the section eval: which rounds are tested, on which data, with whose parameters, and which round is the
// result.
type Eval struct {
	Every int `config:"every" in:"1.." help:"rounds between tests; the last round is always tested"`
	Last  int `config:"last" in:"1..999999" help:"number of last rounds whose mean is the result"`
	// View is spec.Plan.View.
	View string `config:"view" in:"method|global|personal"`
	// What is tested beside a client's test data, and which round counts.
	Validate   bool     `config:"validate" help:"also test on the clients' validation data in every tested round"`
	Select     string   `config:"select" in:"last|best-val"`
	Sets       []string `config:"sets"`
	SetsRoot   string   `config:"sets_root" help:"folder of those sets; empty: data.root"`
	SetsEvery  int      `config:"sets_every"`
	NewClients int      `config:"new_clients"`
	NewSteps   []int    `config:"new_steps"`
	FineTune   int      `config:"fine_tune" in:"0..100000"`
	// Target is read by reports; it changes nothing that is computed.
	Target    float64 `config:"target" in:"0..100"`
	Confusion string  `config:"confusion" in:"local|all|none"`
	ZeroShot  bool    `config:"zero_shot"`
	// Terms changes nothing that is trained.
	Terms bool `config:"terms"`
	// Embeddings bounds the images of embeddings.safetensors.
	Embeddings int `config:"embeddings" in:"0.."`
}

func (Eval) LongHelp() map[string]string {
	return map[string]string{
		"view": "parameters that results belong to: global (the server's), personal (each client's own) or method " +
			"(as its paper says)",
		"select": "the round that is the result: last, or best-val (best validation accuracy, whose parameters are " +
			"kept)",
		"sets": "other data sets, each with its own classes, that every client is tested on: cross-dataset transfer",
		"sets_every": "rounds between tests on all evaluation sets (other sets, base and new classes, domains left " +
			"out); 0: after the last round only",
		"new_clients": "number of clients that never train and are tested after a few steps of their own; drawn from " +
			"the seed, numbered last",
		"new_steps": "steps that a new client takes from the shared parameters, on its own training data, before it " +
			"is tested",
		"fine_tune": "epochs that each client trains a copy of the server's parameters on its own training data " +
			"before its personal evaluation, which tests that copy; 0: the parameters that it trained last are tested",
		"target": "accuracy in percent; tables show the rounds, bytes and parameters needed to reach it " +
			"(docs/report.md); 0 for none",
		"confusion": "confusion matrix of the last test: local (clients of this process), all (clients on other " +
			"machines send their counts too) or none",
		"zero_shot": "compare hand-written prompts with chance before training, and warn where they are not better",
		"terms": "measure each term of the loss in every round: its value, and the norm of its gradient next to " +
			"cross entropy's, and the drift of clients; costs a backward pass per term",
		"embeddings": "number of test images whose features are kept, with those of the texts, for the report's map; " +
			"0 for none",
	}
}

// Defaults returns the configuration that a file, the environment and flags change.
func Defaults() Config {
	return Config{
		Name: "run", Seed: 1, Backbones: []string{"tiny-vit-b16"}, Assign: "cycle", Method: "promptfl",
		Data: DataSection{Config: sets.Defaults(), Views: 1, Classes: allClasses,
			Duplicates: data.DuplicatesKeep, Precision: data.Half, Template: autoTemplate,
			LabelNoise: data.NoLabelNoise()},
		Synthetic: Synthetic{Config: sets.Defaults(), Epochs: 10},
		Partition: partition.Defaults(),
		Train: Train{Rounds: 10, Epochs: 1, Batch: 32, Loss: softmaxLoss, Optimizer: "sgd", State: freshState,
			LR: 0.002, Momentum: 0.9, WeightDecay: 5e-4, Memory: 4, Schedule: optim.Schedule{Kind: "constant"}},
		Participation: 1,
		Sampling:      "fixed",
		Attack:        attack.Defaults(),
		Eval: Eval{Every: 1, Last: 1, View: record.MethodView, Validate: true, Select: lastRound,
			NewSteps: []int{0, 10}, Confusion: localOnly, ZeroShot: true},

		SimulatedTime:     simulatedtime.Defaults(),
		SecureAggregation: secure.Defaults(),

		Reproduce: Reproduce{Labels: asMeant, ClassNames: asMeant},
		Runtime:   defaultRuntime(),
	}
}

const (
	freshState  = "fresh"
	sharedState = "shared"
)

// InOneProcess refuses a configuration whose clients must train in one process.
func (c Config) InOneProcess() error {
	n := c.Runtime.BatchClients
	return cmp.Or(configtags.Need(c.Train.State != sharedState, "train.optimizer_state", "shared passes one optimizer "+
		"from client to client; run this experiment in one process, or set it to fresh"),
		configtags.Need(n <= 1, "runtime.batch_clients", "%d trains clients of one process together, but here each "+
			"client trains alone; set it to 1", n))
}

// poisson draws each client of a round by itself.
const poisson = "poisson"

// Check returns an error for a mistake in the configuration; it opens nothing.
func (c Config) Check() error {
	return errors.Join(c.CheckWithoutData(), sets.ValidateSet(c.Data.Config))
}

// CheckWithoutData is Check for programs that open no data set: a server whose clients are on other machines, and
// commands that use a finished run.
func (c Config) CheckWithoutData() error {
	_, badOptimizer := optim.New(c.Train.optimizer())
	_, badSchedule := c.Train.Schedule.New(c.Train.LR)
	if badOptimizer != nil { // perhaps for the rate, which the schedule would refuse again
		badSchedule = nil
	}

	return errors.Join(checkName(c.Name),
		configtags.Need(len(c.Backbones) > 0, "backbones", "empty; name at least one, see promptfed list backbones"),
		configtags.Check("", c), configtags.Check("data.", c.Data), c.checkEval(),
		configtags.Check("partition.", c.Partition), configtags.Check("train.", c.Train),
		configtags.Check("train.each.", c.Train.Each),
		configtags.Need(c.Data.Template == autoTemplate || strings.Contains(c.Data.Template, "{}"), "data.template",
			"%q has no {} for the class name", c.Data.Template),
		ofOptim("train", badOptimizer),
		configtags.Need(c.Train.State != sharedState || !c.SecureAggregation.Enabled(), "train.optimizer_state",
			"shared passes traces of one client's gradients to the next client, which secure aggregation is to "+
				"prevent; use only one of the two"),
		ofOptim("train.schedule", badSchedule), c.checkSimulatedTime(), c.Runtime.check(), c.Data.CheckOptions(),
		c.Synthetic.check(), c.Reproduce.check(c.Data), c.Data.LabelNoise.Check(), c.Attack.Check())
}

// ofOptim adds the section to an error of package optim, if there is one.
func ofOptim(section string, err error) error {
	if err == nil {
		return nil
	}

	key := section
	if setting, ok := errors.AsType[*optim.SettingError](err); ok {
		key += "." + setting.Key
	}
	return &configtags.KeyError{Key: key, Err: fmt.Errorf("%s: %w", section, err)}
}

// longestName bounds names of runs, in bytes: a file system takes 255 for a folder, and some files are named after the
// run.
const longestName = 200

// checkName refuses names that are not the name of one folder.
func checkName(name string) error {
	switch {
	case name == "":
		return configtags.KeyErrorf("name", "empty; the run's folder is named after it")
	case strings.HasPrefix(name, "."), strings.ContainsAny(name, `/\`), strings.ContainsFunc(name, unicode.IsControl):
		return configtags.KeyErrorf("name", "%q cannot name a folder in runs/: remove slashes, control characters and "+
			"a leading dot; --out sets another folder", name)
	case len(name) > longestName:
		return configtags.KeyErrorf("name", "%d bytes are too many for the name of a folder; at most %d are allowed",
			len(name), longestName)
	}

	return nil
}

func (t Train) optimizer() optim.Config {
	return optim.Config{Name: t.Optimizer, LR: t.LR, Momentum: t.Momentum, Dampening: t.Dampening, Nesterov: t.Nesterov,
		WeightDecay: t.WeightDecay, Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, ClipNorm: t.ClipNorm,
		ClipValue: t.ClipValue}
}

// neverReached warns that no round trains at the learning rate, because the schedule's warm-up covers all rounds.
func (t Train) neverReached() []string {
	if t.Schedule.Warmup < t.Rounds {
		return nil
	}
	return []string{fmt.Sprintf("train.lr is never reached: train.schedule.warmup, %d, covers all %d rounds; lower "+
		"it, or raise train.rounds", t.Schedule.Warmup, t.Rounds)}
}

func (c Config) checkSimulatedTime() error {
	t := c.SimulatedTime
	buffered := t.FedBuff.Buffer > 0
	return errors.Join(t.Check(),
		configtags.Need(!t.Enabled() || !c.SecureAggregation.Enabled(), "simulated_time.speeds", "secure aggregation "+
			"needs all clients that began a round, however late; use only one of the two"),
		configtags.Need(!buffered || c.Sampling != poisson, "simulated_time.fedbuff.buffer",
			"clients train all the time, none is drawn for a round; set sampling: fixed"),
		configtags.Need(!buffered || c.Train.State != sharedState, "simulated_time.fedbuff.buffer",
			"clients train at the same time; set train.optimizer_state: fresh"))
}

// Overrides is the section train.each: lists with an entry for each client, repeated if there are more clients; empty
// for equal clients.
type Overrides struct {
	Epochs []int `config:"epochs" in:"1.." help:"epochs of each client, in place of train.epochs"`
	Batch  []int `config:"batch" in:"1.." help:"batch of each client, in place of train.batch"`
	Steps  []int `config:"steps" in:"0.." help:"most steps of each client in a round; 0: no limit"`
}

// perClient returns the entries as the engine repeats them.
func (e Overrides) perClient(clients int) []spec.Overrides {
	if len(e.Epochs)+len(e.Batch)+len(e.Steps) == 0 {
		return nil
	}

	at := func(list []int, i int) int {
		if len(list) == 0 {
			return 0
		}
		return list[i%len(list)]
	}

	out := make([]spec.Overrides, clients)
	for i := range out {
		out[i] = spec.Overrides{Epochs: at(e.Epochs, i), Batch: at(e.Batch, i), Steps: at(e.Steps, i)}
	}

	return out
}
