package dasslimport

// Setting is one Dassl setting and its conversion.
type Setting struct {
	Dassl          string // dotted yacs key, or --flag for a flag without a key
	Flag           string // equivalent command-line flag; empty for none
	OverridesFiles bool   // the flag wins over files; other flags lose to files
	Trainer        string // promptfed name of the method; empty for all methods
	Key            string // dotted key, or a description of several keys that are decided together
	Note           string // difference between the two, or the reason for converting nothing

	to convert // nil if the key is decided with others, or has no effect on results
}

// HasNoEffect reports whether a setting changes no result and is therefore skipped.
func (s Setting) HasNoEffect() bool { return s.Key == "" && s.to == nil }

// Differs describes the difference: the note, or the replacement of unsupported values.
func (s Setting) Differs() string {
	if s.Note == "" && s.to != nil && (s.Key == "" || s.Dassl == "INPUT.TRANSFORMS") {
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

// Settings returns the table of all known settings of Dassl-based code.
func Settings() []Setting {
	return []Setting{
		{Dassl: "TRAINER.NAME", Flag: "trainer", OverridesFiles: true, Key: "method", to: keep},
		{Dassl: "MODEL.BACKBONE.NAME", Flag: "backbone", OverridesFiles: true, Key: "backbones", to: backbone},
		{Dassl: "SEED", Flag: "seed", OverridesFiles: true, Key: "seed", to: seed,
			Note: "the same seed gives other random numbers, except for partitions with partition.code"},
		{Dassl: "DATASET.NAME", Flag: "dataset", Key: "data.set", to: dataset},
		{Dassl: "DATASET.ROOT", Flag: "root", OverridesFiles: true, Key: "data.root", to: text},
		{Dassl: "DATASET.NUM_SHOTS", Flag: "num_shots", Key: "data.shots", to: shots,
			Note: "per class and client, as there; DATASET.USEALL makes it 0"},
		{Dassl: "DATASET.USEALL", Flag: "useall", Key: "data.shots"},
		{Dassl: "DATASET.SUBSAMPLE_CLASSES", Key: "data.classes", to: one("all", "base", "new")},
		{Dassl: "DATASET.USERS", Flag: "num_users", Key: "partition.clients", to: whole(1)},
		{Dassl: "DATASET.IID", Flag: "iid", Key: "partition.kind"},
		{Dassl: "DATASET.PARTITION", Flag: "partition", Key: "partition.kind"},
		{Dassl: "DATASET.BETA", Flag: "beta", Key: "partition.beta", to: positive},
		{Dassl: "DATASET.REPEATRATE", Key: "partition.repeat", to: number(0)},
		{Dassl: "DATASET.USER_PROMPT_LENGTHS", Flag: "prompts_lens", Trainer: "fedpha", Key: "options.local_tokens",
			Note: lengths},
		{Dassl: "DATALOADER.TRAIN_X.BATCH_SIZE", Flag: "train_batch_size", OverridesFiles: true, Key: "train.batch",
			to: whole(1)},
		{Dassl: "OPTIM.ROUND", Flag: "round", Key: "train.rounds", to: whole(1)},
		{Dassl: "OPTIM.MAX_EPOCH", Key: "train.epochs, or of a central trainer train.rounds", to: whole(1)},
		{Dassl: "OPTIM.NAME", Key: "train.optimizer", to: one("sgd", "adam", "adamw")},
		{Dassl: "OPTIM.LR", Flag: "lr", Key: "train.lr", to: positive},
		{Dassl: "OPTIM.MOMENTUM", Key: "train.momentum", to: number(0)},
		{Dassl: "OPTIM.WEIGHT_DECAY", Key: "train.weight_decay", to: number(0)},
		{Dassl: "OPTIM.SGD_DAMPNING", Key: "train.dampening", to: number(0)},
		{Dassl: "OPTIM.SGD_NESTEROV", Key: "train.nesterov", to: truth},
		{Dassl: "OPTIM.ADAM_BETA1", Key: "train.beta1", to: positive},
		{Dassl: "OPTIM.ADAM_BETA2", Key: "train.beta2", to: positive},
		{Dassl: "OPTIM.LR_SCHEDULER", Key: "train.schedule.kind"},
		{Dassl: "OPTIM.STEPSIZE", Key: "train.schedule.step_size"},
		{Dassl: "OPTIM.GAMMA", Flag: "gamma", Key: "train.schedule.gamma", to: positive},
		{Dassl: "OPTIM.WARMUP_EPOCH", Key: "train.schedule.warmup", to: whole(-1)},
		{Dassl: "OPTIM.WARMUP_TYPE", Key: "train.schedule.warmup_kind", to: one("constant"),
			Note: "their linear warm-up has other rates"},
		{Dassl: "OPTIM.WARMUP_CONS_LR", Key: "train.schedule.warmup_lr", to: positive},
		{Dassl: "OPTIM.WARMUP_RECOUNT", to: only("promptfed's schedule begins after the warm-up", true)},
		{Dassl: "--frac", Flag: "frac", Key: "participation", to: positive},
		{Dassl: "--model", Flag: "model", Key: "with", to: wrapper,
			Note: "fedprox becomes a wrapper"},
		{Dassl: "--mu", Flag: "mu", Key: "options.mu", to: number(0), Note: "of --model fedprox"},
		{Dassl: "INPUT.SIZE", to: only("the backbone's own size is used", []any{224, 224})},
		{Dassl: "INPUT.INTERPOLATION", to: only("images are resized bicubically", "bicubic")},
		{Dassl: "INPUT.PIXEL_MEAN", to: near("the backbone's own mean is used", .48145466, .4578275, .40821073)},
		{Dassl: "INPUT.PIXEL_STD",
			to: near("the backbone's own deviation is used", .26862954, .26130258, .27577711)},
		{Dassl: "INPUT.TRANSFORMS", Flag: "transforms", OverridesFiles: true, Key: "data.views",
			to: none(transforms)},
		// Settings of methods.
		{Trainer: "promptfl", Dassl: "TRAINER.PROMPTFL.N_CTX", Flag: "n_ctx", Key: "options.tokens", to: whole(1)},
		{Trainer: "promptfl", Dassl: "TRAINER.PROMPTFL.CSC", Key: "options.class_specific", to: truth},
		{Trainer: "promptfl", Dassl: "TRAINER.PROMPTFL.CLASS_TOKEN_POSITION", Key: "options.position", to: position},
		{Trainer: "promptfl", Dassl: "TRAINER.PROMPTFL.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "promptfl", Dassl: "TRAINER.PROMPTFL.PREC", to: only(precision, "fp32")},
		{Trainer: "coop", Dassl: "TRAINER.COOP.N_CTX", Key: "options.tokens", to: whole(1)},
		{Trainer: "coop", Dassl: "TRAINER.COOP.CSC", Key: "options.class_specific", to: truth},
		{Trainer: "coop", Dassl: "TRAINER.COOP.CLASS_TOKEN_POSITION", Key: "options.position", to: position},
		{Trainer: "coop", Dassl: "TRAINER.COOP.CTX_INIT", to: only(words, "", false)},
		{Trainer: "coop", Dassl: "TRAINER.COOP.PREC", to: only(precision, "fp32")},
		{Trainer: "cocoop", Dassl: "TRAINER.COCOOP.N_CTX", Key: "options.tokens", to: whole(1)},
		{Trainer: "cocoop", Dassl: "TRAINER.COCOOP.CTX_INIT", Key: "options.words", to: phrase},
		{Trainer: "cocoop", Dassl: "TRAINER.COCOOP.PREC", to: only(precision, "fp32")},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.N_CTX", Flag: "n_ctx", Key: "options.tokens", to: whole(1)},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.CLASS_TOKEN_POSITION", Key: "options.position", to: position},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.EPS", Flag: "eps", Key: "options.eps", to: positive},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.THRESH", Flag: "thresh", Key: "options.threshold", to: positive},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.MAX_ITER", Flag: "max_iter", Key: "options.iters", to: whole(1)},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.TOP_PERCENT", Flag: "top_percent", Key: "options.top_percent",
			to: positive},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.OT", Flag: "OT", Key: "options.transport",
			to: mapped(map[string]string{"cot": "unbalanced", "sinkhorn": "balanced"})},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.N", Flag: "num_prompt", to: only("this method has two prompts", 2)},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.CSC", to: only("it has one prompt for all classes", false)},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "fedotp", Dassl: "TRAINER.GLP_OT.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.N_CTX", Flag: "n_ctx", Key: "options.tokens", to: whole(1)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.BOTTLENECK", Flag: "bottleneck", Key: "options.rank",
			to: whole(1)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.mu", Key: "options.mu", to: number(0)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.temp", Flag: "temp", Key: "options.temp", to: positive},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.N", to: only("it has one prompt", 1)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.CSC", to: only("it has one prompt for all classes", false)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.CLASS_TOKEN_POSITION", to: only("this method has class names at "+
			"the end", "end")},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.CTX_INIT", Flag: "ctx_init", to: only(words, "", false)},
		{Trainer: "fedpgp", Dassl: "TRAINER.FEDPGP.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE.N_CTX", Flag: "n_ctx", Key: "options.global_tokens",
			to: whole(1), Note: "for GL_SVDMSE also options.local_tokens"},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE_HE.N_CTX_GLOBAL", Key: "options.global_tokens", to: whole(1)},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE.alpha", Flag: "alpha", Key: "options.alpha", to: number(0)},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE_HE.alpha", Key: "options.alpha", to: number(0)},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE.ratio", Flag: "ratio", Key: "options.ratio", to: positive},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE_HE.ratio", Key: "options.ratio", to: positive},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Dassl: "TRAINER.GL_SVDMSE_HE.PREC", to: only(precision, "fp32")},
		{Trainer: "fedpha", Dassl: "--specify", Flag: "specify", Key: "options.local_tokens"},
		// Settings without effect on results.
		{Dassl: "DATALOADER.TEST.BATCH_SIZE", Flag: "test_batch_size"},
		{Dassl: "DATALOADER.NUM_WORKERS"}, {Dassl: "TRAIN.PRINT_FREQ"}, {Dassl: "VERBOSE"}, {Dassl: "USE_CUDA"},
		{Dassl: "OUTPUT_DIR", Flag: "output_dir"}, {Dassl: "--logdir", Flag: "logdir"},
		{Dassl: "--device_id", Flag: "device_id"}, {Dassl: "--avg_prompt", Flag: "avg_prompt"},
		{Dassl: "--config_file", Flag: "config_file"}, {Dassl: "--dataset_config_file", Flag: "dataset_config_file"},
	}
}

// defaults are Dassl defaults that differ from promptfed's. They apply if no file has the setting. A promptfed key
// overrides them.
var defaults = []struct{ theirs, ours, is string }{
	{"INPUT.TRANSFORMS", "data.views", "images are resized without keeping their aspect ratio"},
	{"INPUT.INTERPOLATION", "", "bilinear"},
	{"INPUT.PIXEL_MEAN", "", "ImageNet's"},
	{"INPUT.PIXEL_STD", "", "ImageNet's"},
	{"TRAINER.PROMPTFL.PREC", "", half}, {"TRAINER.COOP.PREC", "", half}, {"TRAINER.COCOOP.PREC", "", half},
	{"TRAINER.GLP_OT.PREC", "", half}, {"TRAINER.FEDPGP.PREC", "", half}, {"TRAINER.GL_SVDMSE.PREC", "", half},
	{"TRAINER.GL_SVDMSE_HE.PREC", "", half},
}

// trainer is a trainer of Dassl-based code.
type trainer struct {
	method    string // promptfed name
	central   bool   // a trainer of CoOp's code, which trains once on all examples
	untrained bool
	oneCode   bool   // only in FedPHA's code, which resets momentum and trains all clients
	lengths   bool   // each client has its own private prompt length
	always    []line // implicit behaviour of the code
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

// wrappers maps values of --model to promptfed wrappers.
var wrappers = []struct {
	theirs string
	ours   []string
}{{"fedavg", nil}, {"FedOTP", nil}, {"fedprox", []string{"fedprox"}}}

var backbones = map[string]string{"vit-b/16": "vit-b16", "vit-b/32": "vit-b32", "rn50": "rn50", "rn101": "rn101"}

// datasets maps names of data sets that differ from promptfed's, in lower case, with letters and digits only.
var datasets = map[string]string{"oxfordflowers": "flowers102", "describabletextures": "dtd",
	"office":         "officecaltech10",
	"imagenetsketch": "imagenet-sketch", "imageneta": "imagenet-a", "imagenetr": "imagenet-r"}
