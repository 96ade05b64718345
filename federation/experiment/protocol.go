package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/attack"
	"promptfed/federation/configtags"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/tensor"
)

// Protocol is what all machines of an experiment have in common: the method, the plan of rounds and tests, and the
// protection of clients. It needs neither images nor backbones.
type Protocol struct {
	Config     Config           // with every option of the method
	Experiment *spec.Experiment // without clients, backbones and evaluation sets
	// Aggregation is that of secure aggregation; nil for none.
	Aggregation *secure.Aggregation

	clients int
}

// role says which sides of an experiment are in this process.
type role int

const (
	wholeRun   role = iota // the server and its clients
	workerSide             // clients of a run whose server is in another process
	remoteSide             // the server or one client, whose other sides are on machines of others
)

// members says who takes part in an experiment.
type members struct {
	role        role
	clients     int
	classes     []string // empty on a server before clients have joined
	seededNoise bool     // both sides agreed to noise from the run's seed (--insecure-dp)
}

// newProtocol refuses what a method, its plan or its protection forbids.
func newProtocol(config Config, who members) (*Protocol, error) {
	config.Runtime.Prepack, config.Runtime.Spinning = named(config.Runtime.Prepack), named(config.Runtime.Spinning)
	if who.role != wholeRun { // here each client trains alone
		config.Runtime.BatchClients = max(1, config.Runtime.BatchClients)
	}

	stack, err := methods.Resolve(config.Method, config.With, config.Options)
	if err != nil {
		return nil, err
	}

	base := stack.Method
	config.Options = stack.Options

	options, err := json.Marshal(methods.ShortOptions(config.Options))
	if err != nil {
		return nil, configtags.KeyErrorf("options", "%w", err)
	}

	experiment := config.experiment(base, who.classes)
	if experiment.Options = string(options); config.Train.Loss == sigmoidLoss { // softmax is in no fingerprint
		experiment.Options += " train.loss=" + config.Train.Loss
	}

	experiment.Options += config.attackTerm()
	prompt, _ := config.Options["tokens"].(int)
	experiment.Remedy = record.Remedy(prompt, config.Train.LR)
	protocol := &Protocol{Config: config, Experiment: experiment, clients: who.clients}
	if who.role == remoteSide { // clients send counts of classes only on request, and accuracies are what they claim
		experiment.Evaluate.Confusion, experiment.Evaluate.Claimed = config.Eval.Confusion == everyone, true
	}

	if experiment.Attack, err = config.attackers(experiment.Plan.Trainers, who.clients); err != nil {
		return nil, err
	}

	experiment.Plan.Attackers = experiment.Attack.Attackers
	if err := config.checkPrivacy(base); err != nil {
		return nil, err
	}

	if config.Train.Patience > 0 && method.NeedsLastRound(base) {
		return nil, configtags.KeyErrorf("train.patience", "the method makes its result in the last round, before "+
			"which the run may end: set it to 0, or of promptsrc options.gpa: none")
	}

	if who.role == wholeRun && config.Synthetic.Set == "" && methods.NeedsSynthetic(base) {
		return nil, errors.New("the method needs images of the server's own: give them in the section synthetic, " +
			"such as synthetic: {set: folder, root: IMAGES}")
	}

	if experiment.Privacy, err = protocol.privacy(who.seededNoise); err != nil {
		return nil, err
	}

	if err := protocol.checkFedBuff(); err != nil {
		return nil, err
	}

	if experiment.SimulatedTime, err = config.SimulatedTime.Plan(protocol.clients, config.Seed); err != nil {
		return nil, err
	}

	return protocol, protocol.openSecureAggregation()
}

// experiment returns the engine's experiment as far as the configuration alone decides on it.
func (c Config) experiment(base method.Method, classes []string) *spec.Experiment {
	experiment := &spec.Experiment{
		Name: c.Name, MethodName: strings.Join(append([]string{methods.Called(c.Method, c.Options)}, c.With...), "+"),
		Reproduces: c.Reproduces(), Method: base, Classes: classes, Template: c.Data.Template,
		Precision: c.Data.Precision, BatchClients: c.Runtime.BatchClients,
		Training: spec.Training{Epochs: c.Train.Epochs, Batch: c.Train.Batch, DropLast: c.Train.DropLast,
			FineTune: c.Eval.FineTune, Optim: c.Train.optimizer(), Schedule: c.Train.Schedule,
			Overrides: c.Train.Each.perClient(c.Partition.Clients), Shared: c.Train.State == sharedState,
			Memory: int(c.Train.Memory * (1 << 30))},
		Plan: spec.Plan{Rounds: c.Train.Rounds, Participation: c.Participation, Poisson: c.Sampling == poisson,
			TestEvery: c.Eval.Every, View: c.Eval.View, Seed: c.Seed},
		Evaluate: record.TestPlan{Validate: c.Eval.Validate, BestVal: c.Eval.Select == BestVal,
			Patience: c.Train.Patience, SetsEvery: c.Eval.SetsEvery, NewSteps: c.Eval.NewSteps,
			Confusion: c.Eval.Confusion != nobody, ZeroShot: c.Eval.ZeroShot},
		Warnings: slices.Concat(methods.InactiveTerms(base, c.Train.Rounds), c.Train.neverReached()),
	}

	if c.Eval.NewClients > 0 { // the last ones, where holdOutClients puts those that it draws
		all, n := tensor.Indices(c.Partition.Clients), c.Partition.Clients-c.Eval.NewClients
		experiment.Plan.Trainers, experiment.Plan.New = all[:n], all[n:]
	}

	return experiment
}

// attackTerm returns what distinguishes attacked runs in the fingerprint, like an option of the method.
func (c Config) attackTerm() string {
	if !c.Attack.Enabled() {
		return ""
	}

	text, err := json.Marshal(c.Attack)
	if err != nil { // of numbers and texts there is none
		panic(err)
	}

	return " attack=" + string(text)
}

// noAttack refuses an attack by real clients.
func (c Config) noAttack() error {
	return configtags.Need(!c.Attack.Enabled(), "attack.kind", "attacks are simulated by promptfed run only (also "+
		"with --cluster), not by serve and join; set it to none")
}

// attackers draws the attackers among the clients that train: those of a list, or all.
func (c Config) attackers(trainers []int, clients int) (attack.Attack, error) {
	if !c.Attack.Enabled() {
		return attack.Attack{}, nil
	}

	if c.Train.Centralised {
		return attack.Attack{}, configtags.KeyErrorf("attack.kind", "train.centralised has one client, which would be "+
			"the only attacker; use only one of the two")
	}

	if len(trainers) == 0 {
		trainers = tensor.Indices(clients)
	}

	drawn, err := c.Attack.Attackers(trainers, c.Seed)
	return attack.Attack{Config: c.Attack, Attackers: drawn, Seed: c.Seed}, err
}

// checkPrivacy refuses settings that undo the protection of clients.
func (c Config) checkPrivacy(m method.Method) error {
	hides := methods.HidesClients(m)
	return cmp.Or(configtags.Need(hides || c.Sampling != poisson, "sampling", "poisson may draw no client, and the "+
		"mean of no upload is undefined; set sampling: fixed, or add dp to with"),
		configtags.Need(!hides || c.Train.State != sharedState, "train.optimizer_state", "shared carries gradients of "+
			"one client into the upload of another, which differential privacy does not account for; set it to fresh"),
		configtags.Need(!c.Eval.Terms || !hides && !c.SecureAggregation.Enabled(), "eval.terms", "each client would "+
			"report the norms of its own gradients, which secure aggregation and differential privacy hide; use only "+
			"one of the two"))
}

// checkFedBuff refuses buffered aggregation that the method or the number of clients does not allow.
func (p *Protocol) checkFedBuff() error {
	const section = "simulated_time.fedbuff"
	const key = section + ".buffer"
	buffer, base := p.Config.SimulatedTime.FedBuff.Buffer, p.Experiment.Method
	if buffer == 0 {
		return nil
	}

	if err := methods.CheckBuffered(base); err != nil {
		return &configtags.KeyError{Key: key, Err: fmt.Errorf(section+": %w", err)}
	}

	alike := method.Any(base, func(p method.Properties) bool { return p.Mean == method.Uniform })
	if weights := p.Config.SimulatedTime.FedBuff.Weights; alike && weights == string(method.ByExamples) {
		return configtags.KeyErrorf(section+".weights", "%s has no effect, since %s counts clients alike: set it to "+
			"uniform, or option weighting to %[1]s", weights, p.Experiment.MethodName)
	}

	if n := int(p.Sampling().Size); buffer > n {
		return configtags.KeyErrorf(key, "%d uploads never accumulate where %d clients train at the same time; set %d "+
			"or fewer, or raise participation", buffer, n, n)
	}

	return nil
}

// RunsAs returns the protocol with what the clients of a server agreed on.
func (p Protocol) RunsAs(agreed spec.RunSpec) *Protocol {
	experiment := *p.Experiment
	experiment.Classes, experiment.Template, experiment.EvaluationSets = agreed.Classes, agreed.Template, nil
	for _, name := range agreed.EvaluationSets {
		experiment.EvaluationSets = append(experiment.EvaluationSets, spec.EvaluationSet{Name: name})
	}
	p.Config.Data.Template, p.Experiment = agreed.Template, &experiment
	return &p
}
