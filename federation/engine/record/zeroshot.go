package record

import (
	"fmt"
	"math"
	"strings"

	"promptfed/federation/method"
)

// ZeroShot is the accuracy of an experiment's hand-written prompts on the test images of all clients of one backbone,
// before training.
type ZeroShot struct {
	Backbone string  `json:"backbone"`
	Accuracy float64 `json:"accuracy"` // right answers over test examples
	Clients  int     `json:"clients"`  // that have the backbone
	Mean     float64 `json:"mean"`     // of their accuracies
	Classes  int     `json:"classes"`
	// the larger of 1/classes and the share of the most frequent class among these images
	Chance float64 `json:"chance"`
	// Failed is the reason why there is no accuracy, such as a class name that is too long for the texts.
	Failed string `json:"failed,omitempty"`
}

// ZeroShotMean is the mean over clients of the accuracies of hand-written prompts, to compare with headlines; false
// where it is unknown of a client: a folder of another version may lack it.
func (s Summary) ZeroShotMean() (float64, bool) {
	sum, clients := 0.0, 0
	for _, z := range s.ZeroShot {
		if z.Failed != "" || z.Clients == 0 {
			return 0, false
		}
		sum, clients = sum+z.Mean*float64(z.Clients), clients+z.Clients
	}

	return sum / float64(max(1, clients)), clients > 0
}

// ZeroShotWarnings lists the warnings about zero-shot accuracies.
func ZeroShotWarnings(list []ZeroShot) []string {
	var out []string
	for _, z := range list {
		if line := z.warning(); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// warning states in one line what to check where hand-written prompts are no better than chance; empty where they are
// better.
func (z ZeroShot) warning() string {
	switch {
	case z.Failed != "":
		return fmt.Sprintf("zero-shot accuracy of %s could not be computed: %s", z.Backbone, z.Failed)
	case z.Accuracy > z.Chance, z.Chance == 1: // nothing is above the chance of test images of one class
		return ""
	}

	return fmt.Sprintf("zero-shot accuracy of %s is %.1f %%, not above chance (%.1f %%: the larger of 1/%d and the "+
		"most frequent class): check the order and spelling of class names, the labels, data.template, and that "+
		"images are preprocessed as the backbone expects", z.Backbone, 100*z.Accuracy, 100*z.Chance, z.Classes)
}

// Below reports whether an accuracy is below that of hand-written prompts, beyond rounding and beyond two standard
// errors of a share of so many test images; 0 images have no error.
func Below(accuracy, zeroShot float64, images int) bool {
	margin := 1e-9
	if images > 0 {
		margin += 2 * math.Sqrt(zeroShot*(1-zeroShot)/float64(images))
	}
	return accuracy < zeroShot-margin
}

// Falls reports whether the last of these records is the first one that is Below zero-shot accuracy and not above the
// tested round before. A random prompt may begin below it and rise.
func Falls(records []Record, view method.View, list []ZeroShot) bool {
	zeroShot, known := Summary{ZeroShot: list}.ZeroShotMean()
	before := math.Inf(-1)
	for i, r := range records {
		evaluation := r.Evaluations.Of(view)
		if evaluation == nil {
			continue
		}
		images := 0
		for _, n := range r.TestSizes {
			images += n
		}
		if known && evaluation.Accuracy() <= before && Below(evaluation.Accuracy(), zeroShot, images) {
			return i == len(records)-1
		}
		before = evaluation.Accuracy()
	}

	return false
}

// Remedy says what to try where accuracy is Below that of hand-written prompts. tokens is the length of the learned
// prompt, 0 if unknown, and lr the learning rate.
func Remedy(tokens int, lr float64) string {
	var try []string
	if tokens > 1 {
		try = append(try, fmt.Sprintf("fewer tokens (options.tokens: %d)", min(FewTokens, tokens/2)))
	}

	if lr > 0 {
		try = append(try, fmt.Sprintf("a lower learning rate (train.lr: %.3g)", lr/4))
	}

	return "try " + strings.Join(append(try, "more rounds (train.rounds)"), ", ") +
		", or a method that starts from words, as kgcoop does"
}

// FewTokens is the length of a prompt that seldom leaves the texts that the backbones were trained with.
const FewTokens = 4
