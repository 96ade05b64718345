package dasslimport

import "slices"

// Setting is one Dassl setting and its conversion.
type Setting struct {
	Dassl          string // dotted yacs key, or --flag for a flag without a key
	Flag           string // equivalent command-line flag; empty for none
	OverridesFiles bool   // the flag wins over files; other flags lose to files
	Trainer        string // promptfed name of the method; empty for all methods
	Key            string // dotted key, or a description of several keys that are decided together
	Note           string // difference between the two, or the reason for converting nothing

	to conversion // nil if the key is decided with others, or has no effect on results
}

// HasNoEffect reports whether a setting changes no result and is therefore skipped.
func (s Setting) HasNoEffect() bool { return s.Key == "" && s.to == nil }

// Differs describes the difference: the note, or the replacement of unsupported values.
func (s Setting) Differs() string {
	if s.Note == "" && s.to != nil && s.Key == "" {
		if _, err := s.to(nil); err != nil {
			return err.Error()
		}
	}
	return s.Note
}

const (
	transforms = "a cached image is prepared as in their tests, without random crops and flips; data.views: N " +
		"keeps N seeded random views"
	half    = "half precision"
	words   = "this method has random initial prompts only"
	lengths = "by client, as their USER_PROMPT_LENGTHS"
)

// Settings returns the table of all known settings of Dassl-based code.
func Settings() []Setting {
	return slices.Concat([]Setting{
		{Dassl: "TRAINER.NAME", Flag: "trainer", OverridesFiles: true, Key: "method", to: anything},
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
		{Dassl: "DATASET.REPEATRATE", Key: "partition.repeat", to: number},
		{Dassl: "DATASET.USER_PROMPT_LENGTHS", Flag: "prompts_lens", Trainer: "fedpha", Key: "options.local_tokens",
			Note: lengths},
		{Dassl: "DATALOADER.TRAIN_X.BATCH_SIZE", Flag: "train_batch_size", OverridesFiles: true, Key: "train.batch",
			to: whole(1)},
		{Dassl: "OPTIM.ROUND", Flag: "round", Key: "train.rounds", to: whole(1)},
		{Dassl: "OPTIM.MAX_EPOCH", Key: "train.epochs, or of a central trainer train.rounds", to: whole(1)},
		{Dassl: "OPTIM.NAME", Key: "train.optimizer", to: one("sgd", "adam", "adamw")},
		{Dassl: "OPTIM.LR", Flag: "lr", Key: "train.lr", to: positive},
		{Dassl: "OPTIM.MOMENTUM", Key: "train.momentum", to: number},
		{Dassl: "OPTIM.WEIGHT_DECAY", Key: "train.weight_decay", to: number},
		{Dassl: "OPTIM.SGD_DAMPNING", Key: "train.dampening", to: number},
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
		{Dassl: "--mu", Flag: "mu", Key: "options.mu", to: number, Note: "of --model fedprox"},
		{Dassl: "INPUT.SIZE", to: only("the backbone's own size is used", []any{224, 224})},
		{Dassl: "INPUT.INTERPOLATION", to: only("images are resized bicubically", "bicubic")},
		{Dassl: "INPUT.PIXEL_MEAN", to: near("the backbone's own mean is used", .48145466, .4578275, .40821073)},
		{Dassl: "INPUT.PIXEL_STD",
			to: near("the backbone's own deviation is used", .26862954, .26130258, .27577711)},
		{Dassl: "INPUT.TRANSFORMS", Flag: "transforms", OverridesFiles: true, Key: "data.views",
			to: only(transforms), Note: transforms},
	}, of("promptfl", "PROMPTFL",
		promptTokens, classSpecific, classPosition, randomWords, float32Only,
	), of("coop", "COOP",
		Setting{Dassl: "N_CTX", Key: "tokens", to: whole(1)},
		classSpecific, classPosition,
		Setting{Dassl: "CTX_INIT", to: only(words, "", false)}, float32Only,
	), of("cocoop", "COCOOP",
		Setting{Dassl: "N_CTX", Key: "tokens", to: whole(1)},
		Setting{Dassl: "CTX_INIT", Key: "words", to: phrase}, float32Only,
	), of("fedotp", "GLP_OT",
		promptTokens, classPosition,
		Setting{Dassl: "EPS", Flag: "eps", Key: "eps", to: positive},
		Setting{Dassl: "THRESH", Flag: "thresh", Key: "threshold", to: positive},
		Setting{Dassl: "MAX_ITER", Flag: "max_iter", Key: "iters", to: whole(1)},
		Setting{Dassl: "TOP_PERCENT", Flag: "top_percent", Key: "top_percent", to: positive},
		Setting{Dassl: "OT", Flag: "OT", Key: "transport", to: mapped("it has no equivalent",
			map[string]any{"cot": "unbalanced", "sinkhorn": "balanced"})},
		Setting{Dassl: "N", Flag: "num_prompt", to: only("this method has two prompts", 2)},
		onePrompt, randomWords, float32Only,
	), of("fedpgp", "FEDPGP",
		promptTokens,
		Setting{Dassl: "BOTTLENECK", Flag: "bottleneck", Key: "rank", to: whole(1)},
		Setting{Dassl: "mu", Key: "mu", to: number},
		Setting{Dassl: "temp", Flag: "temp", Key: "temp", to: positive},
		Setting{Dassl: "N", to: only("it has one prompt", 1)},
		onePrompt,
		Setting{Dassl: "CLASS_TOKEN_POSITION", to: only("this method has class names at the end", "end")},
		randomWords, float32Only,
	), of("fedpha", "GL_SVDMSE",
		Setting{Dassl: "N_CTX", Flag: "n_ctx", Key: "global_tokens", to: whole(1),
			Note: "for GL_SVDMSE also options.local_tokens"},
		Setting{Dassl: "alpha", Flag: "alpha", Key: "alpha", to: number},
		Setting{Dassl: "ratio", Flag: "ratio", Key: "ratio", to: positive}, float32Only,
	), of("fedpha", "GL_SVDMSE_HE",
		Setting{Dassl: "N_CTX_GLOBAL", Key: "global_tokens", to: whole(1)},
		Setting{Dassl: "alpha", Key: "alpha", to: number},
		Setting{Dassl: "ratio", Key: "ratio", to: positive}, float32Only,
	), []Setting{
		{Trainer: "fedpha", Dassl: "--specify", Flag: "specify", Key: "options.local_tokens"},
		// Settings without effect on results.
		{Dassl: "DATALOADER.TEST.BATCH_SIZE", Flag: "test_batch_size"},
		{Dassl: "DATALOADER.NUM_WORKERS"}, {Dassl: "TRAIN.PRINT_FREQ"}, {Dassl: "VERBOSE"}, {Dassl: "USE_CUDA"},
		{Dassl: "OUTPUT_DIR", Flag: "output_dir"}, {Dassl: "--logdir", Flag: "logdir"},
		{Dassl: "--device_id", Flag: "device_id"}, {Dassl: "--avg_prompt", Flag: "avg_prompt"},
		{Dassl: "--config_file", Flag: "config_file"}, {Dassl: "--dataset_config_file", Flag: "dataset_config_file"},
	})
}

// Settings of several trainers.
var (
	promptTokens  = Setting{Dassl: "N_CTX", Flag: "n_ctx", Key: "tokens", to: whole(1)}
	classSpecific = Setting{Dassl: "CSC", Key: "class_specific", to: truth}
	onePrompt     = Setting{Dassl: "CSC", to: only("it has one prompt for all classes", false)}
	classPosition = Setting{Dassl: "CLASS_TOKEN_POSITION", Key: "position", to: position}
	randomWords   = Setting{Dassl: "CTX_INIT", Flag: "ctx_init", to: only(words, "", false)}
	float32Only   = Setting{Dassl: "PREC", to: only("promptfed trains in float32; half precision rounds every step",
		"fp32")}
)

// of completes the settings in one section of TRAINER: their keys are options of the method.
func of(method, section string, list ...Setting) []Setting {
	for i := range list {
		s := &list[i]
		s.Trainer, s.Dassl = method, "TRAINER."+section+"."+s.Dassl
		if s.Key != "" {
			s.Key = "options." + s.Key
		}
	}

	return list
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
		{key: "options.pull", is: "mean"}, {key: "options.svd_every", is: "step"}}
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

// datasets maps names of data sets that differ from promptfed's, in lower case, with letters and digits only.
var datasets = map[string]string{"oxfordflowers": "flowers102", "describabletextures": "dtd",
	"office":         "officecaltech10",
	"imagenetsketch": "imagenet-sketch", "imageneta": "imagenet-a", "imagenetr": "imagenet-r"}
