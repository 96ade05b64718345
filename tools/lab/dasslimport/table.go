package dasslimport

// Setting is one setting of that code and what becomes of it.
type Setting struct {
	Theirs  string // dotted yacs key; that of a flag without one is --flag
	Flag    string // of the command line, which sets the same; empty for none
	Strong  bool   // the flag wins over files; other flags lose to them
	Trainer string // the method, in our words, that it is of; empty for all
	Ours    string // dotted key, or several in words for what is decided together
	Note    string // of what is not the same, or why nothing is carried over

	to convert // nil where the key is decided with others, or has no effect on results
}

// Inert reports whether a setting changes no result and is passed over.
func (s Setting) Inert() bool { return s.Ours == "" && s.to == nil }

// Differs says what differs: the note, or what there is in place of values that are not carried over.
func (s Setting) Differs() string {
	if s.Note == "" && s.to != nil && (s.Ours == "" || s.Theirs == "INPUT.TRANSFORMS") {
		if _, err := s.to(nil); err != nil {
			return err.Error()
		}
	}
	return s.Note
}

const (
	transforms = "a cached image is prepared as in their tests, without random crops and flips; data.views: N " +
		"keeps N seeded random views"
	precision = "promptfed trains in float32; half precision rounds every step"
	half      = "half precision"
	words     = "this method has random initial prompts only"
	lengths   = "by client, as their USER_PROMPT_LENGTHS"
)

// Settings is the table of everything that is known of that code.
func Settings() []Setting {
	return []Setting{
		{Theirs: "TRAINER.NAME", Flag: "trainer", Strong: true, Ours: "method", to: keep},
		{Theirs: "MODEL.BACKBONE.NAME", Flag: "backbone", Strong: true, Ours: "backbones", to: backbone},
		{Theirs: "SEED", Flag: "seed", Strong: true, Ours: "seed", to: seed,
			Note: "the same seed gives other random numbers, except for partitions with partition.code"},
		{Theirs: "DATASET.NAME", Flag: "dataset", Ours: "data.set", to: dataset},
		{Theirs: "DATASET.ROOT", Flag: "root", Strong: true, Ours: "data.root", to: text},
		{Theirs: "DATASET.NUM_SHOTS", Flag: "num_shots", Ours: "data.shots", to: shots,
			Note: "per class and client, as there; DATASET.USEALL makes it 0"},
		{Theirs: "DATASET.USEALL", Flag: "useall", Ours: "data.shots"},
		{Theirs: "DATASET.SUBSAMPLE_CLASSES", Ours: "data.classes", to: one("all", "base", "new")},
		{Theirs: "DATASET.USERS", Flag: "num_users", Ours: "partition.clients", to: whole(1)},
		{Theirs: "DATASET.IID", Flag: "iid", Ours: "partition.kind"},
		{Theirs: "DATASET.PARTITION", Flag: "partition", Ours: "partition.kind"},
		{Theirs: "DATASET.BETA", Flag: "beta", Ours: "partition.beta", to: positive},
		{Theirs: "DATASET.REPEATRATE", Ours: "partition.repeat", to: number(0)},
		{Theirs: "DATASET.USER_PROMPT_LENGTHS", Flag: "prompts_lens", Trainer: "fedpha", Ours: "options.local_tokens",
			Note: lengths},
		{Theirs: "DATALOADER.TRAIN_X.BATCH_SIZE", Flag: "train_batch_size", Strong: true, Ours: "train.batch",
			to: whole(1)},
		{Theirs: "OPTIM.ROUND", Flag: "round", Ours: "train.rounds", to: whole(1)},
		{Theirs: "OPTIM.MAX_EPOCH", Ours: "train.epochs, or of a central trainer train.rounds", to: whole(1)},
		{Theirs: "OPTIM.NAME", Ours: "train.optimizer", to: one("sgd", "adam", "adamw")},
		{Theirs: "OPTIM.LR", Flag: "lr", Ours: "train.lr", to: positive},
		{Theirs: "OPTIM.MOMENTUM", Ours: "train.momentum", to: number(0)},
		{Theirs: "OPTIM.WEIGHT_DECAY", Ours: "train.weight_decay", to: number(0)},
		{Theirs: "OPTIM.SGD_DAMPNING", Ours: "train.dampening", to: number(0)},
		{Theirs: "OPTIM.SGD_NESTEROV", Ours: "train.nesterov", to: truth},
		{Theirs: "OPTIM.ADAM_BETA1", Ours: "train.beta1", to: positive},
		{Theirs: "OPTIM.ADAM_BETA2", Ours: "train.beta2", to: positive},
		{Theirs: "OPTIM.LR_SCHEDULER", Ours: "train.schedule.kind"},
		{Theirs: "OPTIM.STEPSIZE", Ours: "train.schedule.step_size"},
		{Theirs: "OPTIM.GAMMA", Flag: "gamma", Ours: "train.schedule.gamma", to: positive},
		{Theirs: "OPTIM.WARMUP_EPOCH", Ours: "train.schedule.warmup", to: whole(-1)},
		{Theirs: "OPTIM.WARMUP_TYPE", Ours: "train.schedule.warmup_kind", to: one("constant"),
			Note: "their linear warm-up has other rates"},
		{Theirs: "OPTIM.WARMUP_CONS_LR", Ours: "train.schedule.warmup_lr", to: positive},
		{Theirs: "OPTIM.WARMUP_RECOUNT", to: only("promptfed's schedule begins after the warm-up", true)},
		{Theirs: "--frac", Flag: "frac", Ours: "participation", to: positive},
		{Theirs: "--model", Flag: "model", Ours: "with", to: wrapper,
			Note: "fedprox becomes a wrapper"},
		{Theirs: "--mu", Flag: "mu", Ours: "options.mu", to: number(0), Note: "of --model fedprox"},
		{Theirs: "INPUT.SIZE", to: only("the backbone's own size is used", []any{224, 224})},
		{Theirs: "INPUT.INTERPOLATION", to: only("images are resized bicubically", "bicubic")},
		{Theirs: "INPUT.PIXEL_MEAN", to: near("the backbone's own mean is used", .48145466, .4578275, .40821073)},
		{Theirs: "INPUT.PIXEL_STD",
			to: near("the backbone's own deviation is used", .26862954, .26130258, .27577711)},
		{Theirs: "INPUT.TRANSFORMS", Flag: "transforms", Strong: true, Ours: "data.views",
			to: none(transforms)},
		// of methods
		{Trainer: "promptfl", Theirs: "TRAINER.PROMPTFL.N_CTX", Flag: "n_ctx", Ours: "options.tokens", to: whole(1)},
		{Trainer: "promptfl", Theirs: "TRAINER.PROMPTFL.CSC", Ours: "options.class_specific", to: truth},
		{Trainer: "promptfl", Theirs: "TRAINER.PROMPTFL.CLASS_TOKEN_POSITION", Ours: "options.position", to: position},
		{Trainer: "promptfl", Theirs: "TRAINER.PROMPTFL.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "promptfl", Theirs: "TRAINER.PROMPTFL.PREC", to: only(precision, "fp32")},
		{Trainer: "coop", Theirs: "TRAINER.COOP.N_CTX", Ours: "options.tokens", to: whole(1)},
		{Trainer: "coop", Theirs: "TRAINER.COOP.CSC", Ours: "options.class_specific", to: truth},
		{Trainer: "coop", Theirs: "TRAINER.COOP.CLASS_TOKEN_POSITION", Ours: "options.position", to: position},
		{Trainer: "coop", Theirs: "TRAINER.COOP.CTX_INIT", to: only(words, "", false)},
		{Trainer: "coop", Theirs: "TRAINER.COOP.PREC", to: only(precision, "fp32")},
		{Trainer: "cocoop", Theirs: "TRAINER.COCOOP.N_CTX", Ours: "options.tokens", to: whole(1)},
		{Trainer: "cocoop", Theirs: "TRAINER.COCOOP.CTX_INIT", Ours: "options.words", to: phrase},
		{Trainer: "cocoop", Theirs: "TRAINER.COCOOP.PREC", to: only(precision, "fp32")},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.N_CTX", Flag: "n_ctx", Ours: "options.tokens", to: whole(1)},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.CLASS_TOKEN_POSITION", Ours: "options.position", to: position},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.EPS", Flag: "eps", Ours: "options.eps", to: positive},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.THRESH", Flag: "thresh", Ours: "options.threshold", to: positive},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.MAX_ITER", Flag: "max_iter", Ours: "options.iters", to: whole(1)},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.TOP_PERCENT", Flag: "top_percent", Ours: "options.top_percent",
			to: positive},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.OT", Flag: "OT", Ours: "options.transport",
			to: mapped(map[string]string{"cot": "unbalanced", "sinkhorn": "balanced"})},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.N", Flag: "num_prompt", to: only("this method has two prompts", 2)},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.CSC", to: only("it has one prompt for all classes", false)},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "fedotp", Theirs: "TRAINER.GLP_OT.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.N_CTX", Flag: "n_ctx", Ours: "options.tokens", to: whole(1)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.BOTTLENECK", Flag: "bottleneck", Ours: "options.rank",
			to: whole(1)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.mu", Ours: "options.mu", to: number(0)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.temp", Flag: "temp", Ours: "options.temp", to: positive},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.N", to: only("it has one prompt", 1)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.CSC", to: only("it has one prompt for all classes", false)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.CLASS_TOKEN_POSITION", to: only("this method has class names at "+
			"the end", "end")},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "fedpgp", Theirs: "TRAINER.FEDPGP.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE.N_CTX", Flag: "n_ctx", Ours: "options.global_tokens",
			to: whole(1), Note: "for GL_SVDMSE also options.local_tokens"},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE_HE.N_CTX_GLOBAL", Ours: "options.global_tokens", to: whole(1)},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE.alpha", Flag: "alpha", Ours: "options.alpha", to: number(0)},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE_HE.alpha", Ours: "options.alpha", to: number(0)},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE.ratio", Flag: "ratio", Ours: "options.ratio", to: positive},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE_HE.ratio", Ours: "options.ratio", to: positive},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Theirs: "TRAINER.GL_SVDMSE_HE.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Theirs: "--specify", Flag: "specify", Ours: "options.local_tokens"},
		// without effect on results
		{Theirs: "DATALOADER.TEST.BATCH_SIZE", Flag: "test_batch_size"},
		{Theirs: "DATALOADER.NUM_WORKERS"}, {Theirs: "TRAIN.PRINT_FREQ"}, {Theirs: "VERBOSE"}, {Theirs: "USE_CUDA"},
		{Theirs: "OUTPUT_DIR", Flag: "output_dir"}, {Theirs: "--logdir", Flag: "logdir"},
		{Theirs: "--device_id", Flag: "device_id"}, {Theirs: "--avg_prompt", Flag: "avg_prompt"},
		{Theirs: "--config_file", Flag: "config_file"}, {Theirs: "--dataset_config_file", Flag: "dataset_config_file"},
	}
}

// defaults are what their code does where no file says otherwise, and ours does not. A key of ours decides it.
var defaults = []struct{ theirs, ours, is string }{
	{"INPUT.TRANSFORMS", "data.views", "images are resized without keeping their aspect ratio"},
	{"INPUT.INTERPOLATION", "", "bilinear"},
	{"INPUT.PIXEL_MEAN", "", "ImageNet's"},
	{"INPUT.PIXEL_STD", "", "ImageNet's"},
	{"TRAINER.PROMPTFL.PREC", "", half}, {"TRAINER.COOP.PREC", "", half}, {"TRAINER.COCOOP.PREC", "", half},
	{"TRAINER.GLP_OT.PREC", "", half}, {"TRAINER.FEDPGP.PREC", "", half}, {"TRAINER.GL_SVDMSE.PREC", "", half},
	{"TRAINER.GL_SVDMSE_HE.PREC", "", half},
}

// trainer is one of their trainers.
type trainer struct {
	method    string // ours
	central   bool   // of CoOp's code, which trains once on the examples of all
	untrained bool
	oneCode   bool   // of FedPHA's code alone: it resets momentum and trains all clients
	lengths   bool   // private prompts have a length for each client
	always    []line // what that code does without being told
}

var (
	fedpha = []line{{key: "options.projector", is: "code"}, {key: "options.projector_grad", is: "through"},
		{key: "options.pull", is: "mean"}}
	trainers = map[string]trainer{
		"PROMPTFL":  {method: "promptfl"},
		"PromptFL":  {method: "promptfl"},
		"GLP_OT":    {method: "fedotp", always: []line{{key: "options.stop", is: "code"}}},
		"FEDPGP":    {method: "fedpgp", always: []line{{key: "options.positive", is: "code"}}},
		"GL_SVDMSE": {method: "fedpha", oneCode: true, always: fedpha},
		"GL_SVDMSE_HE": {method: "fedpha", oneCode: true, lengths: true, always: append(fedpha[:3:3],
			line{key: "options.eot", is: "longest"})},
		"CoOp":         {method: "coop", central: true},
		"CoCoOp":       {method: "cocoop", central: true},
		"ZeroshotCLIP": {method: "zeroshot", central: true, untrained: true},
		"CLIP":         {method: "zeroshot", untrained: true},
	}
)

// wrappers are values of --model, and the wrappers that they are here.
var wrappers = []struct {
	theirs string
	ours   []string
}{{"fedavg", nil}, {"FedOTP", nil}, {"fedprox", []string{"fedprox"}}}

var backbones = map[string]string{"vit-b/16": "vit-b16", "vit-b/32": "vit-b32", "rn50": "rn50", "rn101": "rn101"}

// datasets are those with another name than ours, in lower case and without what is no letter or digit.
var datasets = map[string]string{"oxfordflowers": "flowers102", "describabletextures": "dtd",
	"office":         "officecaltech10",
	"imagenetsketch": "imagenet-sketch", "imageneta": "imagenet-a", "imagenetr": "imagenet-r"}
