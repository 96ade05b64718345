package methods

import (
	"fmt"

	"promptfed/federation/configtags"
)

// removedOptions are options of earlier releases, as METHOD.OPTION. Was is their former default.
var removedOptions = map[string]removedOption{
	"appr.disc_input":       {"tokens", "the discriminator reads tokens one by one"},
	"appr.pool":             {"0", "all past averages are kept"},
	"appr.start":            {"global", "clients start from the average"},
	"dpfpl.factor":          {"1", "it is 1; scale train.lr"},
	"dpfpl.orth_v":          {"true", "the second factor has unit columns"},
	"dpfpl.sign":            {"minus", "it is minus, the projection"},
	"fedamp.alpha":          {"0", "it is sigma over the number of clients"},
	"fedamp.self":           {"scale", "a client's own weight is never negative"},
	"fedappr.disc_input":    {"tokens", "the discriminator reads tokens one by one"},
	"fedappr.pool":          {"0", "all past averages are kept"},
	"fedappr.start":         {"global", "clients start from the average"},
	"fedapt.query_scale":    {"10", "it is 10, about the norm of CLIP's features"},
	"fedclip.input_norm":    {"1", "the adapter reads unit features"},
	"fedclip.template":      {"a picture of a {}", "the text is \"a picture of a {}\""},
	"feddyn.norm":           {"squared", "the term is the paper's square"},
	"fedhpl.border":         {"0", "a pixel prompt covers the whole image"},
	"fedhpl.kd":             {"hinton", "the distillation has the factor T²"},
	"fedhpl.normed":         {"true", "tokens join behind the first layer norm"},
	"fedhpl.of":             {"correct", "rightly classified examples count"},
	"fedlora.aggregate":     {"factors", "the server averages the factors"},
	"fedlora.blocks":        {"0", "all blocks of a tower are adapted; choose options.towers and options.maps"},
	"fedlora.owner":         {"shared", "the changes are averaged; with: [fedper] keeps some of them on their clients"},
	"fedmgp.div":            {"cos", "it is the paper's cosine"},
	"fedmvp.flip":           {"always", "the unprompted tower's images are always flipped"},
	"fedmvp.lora_std":       {"0.02", "it is 0.02"},
	"fedmvp.sentence":       {"a photo of a {} which has {of}.", "it is \"a photo of a {} which has {of}.\""},
	"fednova.strength":      {"1", "it is 1; remove fednova for FedAvg"},
	"fedopt.v_start":        {"zero", "the second moment starts at zero"},
	"fedpha.push":           {"class", "it is class, as in the public code"},
	"fedpr.border":          {"0", "prompts are tokens"},
	"fedpr.normed":          {"true", "tokens join behind the first layer norm"},
	"fedproto.group":        {"backbone", "prototypes are averaged over clients of one backbone"},
	"fedproto.test":         {"scores", "tests take the base method's scores"},
	"fedtpg.classes":        {"own", "a client trains with its own classes"},
	"fedtpg.test":           {"all", "tests score all classes; the metric own-classes scores those of the client"},
	"fedvpt.border":         {"0", "a pixel prompt covers the whole image"},
	"fedvpt.normed":         {"true", "tokens join behind the first layer norm"},
	"ggtpc.patches":         {"noise", "patch features get the noise too"},
	"ivlp.keep_local":       {"none", "use with: [fedper] and options.private"},
	"kgcoop.classes":        {"all", "the mean is over all classes"},
	"kgcoop.distance":       {"cosine", "it is the cosine; the squared distance is the same with twice the lambda"},
	"moon.of":               {"auto", "class scores are contrasted, or prompts where they use nothing shared"},
	"nlprompt.score":        {"paper", "the scores are log p"},
	"pfeddc.att_init":       {"linear", "weights begin as torch.nn.Linear's"},
	"pfeddc.att_width":      {"0", "the attention is as wide as the prompt"},
	"pfeddc.border":         {"0", "a pixel prompt covers the whole image"},
	"pfeddc.heads":          {"1", "the attention has one head"},
	"pfeddc.norm":           {"false", "there is no norm before the attention"},
	"pfeddc.normed":         {"true", "tokens join behind the first layer norm"},
	"pfeddc.query":          {"own", "the private prompt gives the queries"},
	"pfeddc.residual":       {"true", "the private prompt is added"},
	"pfeddc.without":        {"shared", "a tower without attention gets the shared prompt"},
	"pfedmoap.test_experts": {"turn", "a test mixes the prompts that the client trained with"},
	"pfedprompt.train":      {"text", "the prompt is trained on the text's scores"},
	"pfedprompt.value":      {"label", "the attention mixes labels"},
	"plot.stop":             {"pair", "iterations end for each image and class by itself"},
	"proda.divisor":         {"n", "it is n"},
	"promptfolio.renorm":    {"false", "the mixture keeps its length"},
	"promptfolio.start":     {"same", "all clients begin with one draw"},
	"promptsrc.kl":          {"teacher-first", "the teacher's probabilities come first"},
	"qffl.lipschitz":        {"0", "it is 1 over the learning rate"},
	"scaffold.strength":     {"1", "it is 1; remove scaffold for FedAvg"},
	"sdfed.push":            {"class", "it is class, as in FedPHA's public code"},
	"uopp.mixture":          {"entropy", "the expert is weighed by its certainty"},
}

type removedOption configtags.Removed

// renamedOptions maps options of earlier releases, as METHOD.OPTION, to their present names.
var renamedOptions = map[string]string{"ggtpc.survey": "estimate"}

// checkFormer reports whether an option is one of earlier releases, and returns an error unless it may be ignored.
func checkFormer(method, option string, value any) (former bool, err error) {
	name := fmt.Sprintf("options.%s of %s", option, method)
	if now := renamedOptions[method+"."+option]; now != "" {
		return true, fmt.Errorf("%s is now called %s", name, now)
	}
	r, former := removedOptions[method+"."+option]
	if former {
		err = configtags.Removed(r).Check(name, value)
	}
	return former, err
}
