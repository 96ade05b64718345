// Package methods holds the published methods, one small file each, and the one table that lists them.
package methods

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/method"
)

// Entry is one row of the table.
type Entry struct {
	Name    string
	Title   string // as its authors call it
	Paper   string
	Wrapper bool
	// New makes the layer with its default options, as a pointer to the options' struct. A wrapper's field Method is
	// set by Build.
	New     func() layer
	traffic traffic
}

// layer is a pointer to a method's struct of options.
type layer interface {
	// build checks the options and gives the method; inner is the method to wrap, nil for a carrier.
	build(inner method.Method) (method.Method, error)
}

// Table lists carriers first, then wrappers, each sorted by name.
var Table = []Entry{
	{"coop", "CoOp", "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022", false, newCoOp, unstated},
	{"fedappr", "FedAPPR", "Model-Heterogeneous Federated Prompt Learning, under review", false, newFedAPPR,
		apprTraffic},
	{"fedclip", "FedCLIP", "Lu et al., FedCLIP: Fast Generalization and Personalization for CLIP, IEEE Data Eng. " +
		"Bull. 2023", false, newFedCLIP, unstated},
	{"fedhpl", "FedHPL", "Ma et al., FedHPL: Efficient Heterogeneous Federated Learning with Prompt Tuning and Logit " +
		"Distillation, arXiv 2405.17267", false, newFedHPL, logitTraffic},
	{"fedotp", "FedOTP", "Li et al., Global and Local Prompts Cooperation via Optimal Transport, CVPR 2024", false,
		newFedOTP, promptTraffic},
	{"fedpha", "FedPHA", "Fang et al., Federated Prompt Learning for Heterogeneous Client Adaptation, ICML 2025", false,
		newFedPHA, unstated},
	{"fedpgp", "FedPGP", "Cui et al., Harmonizing Generalization and Personalization in Federated Prompt Learning, " +
		"ICML 2024", false, newFedPGP, promptTraffic},
	{"fedpr", "FedPR", "Feng et al., Learning Federated Visual Prompt in Null Space for MRI Reconstruction, CVPR " +
		"2023", false, newFedPR, unstated},
	{"fedtpg", "FedTPG", "Qiu et al., Federated Text-driven Prompt Generation for Vision-Language Models, ICLR 2024",
		false, newFedTPG, unstated},
	{"fedvpt", "FedVPT", "FedAvg of Jia et al., Visual Prompt Tuning, ECCV 2022", false, newFedVPT, unstated},
	{"gptfl", "GPT-FL (adapted)", "after Zhang et al., GPT-FL: Generative Pre-trained Model-Assisted Federated " +
		"Learning, arXiv 2306.02210", false, newGPTFL, promptTraffic},
	{"pfeddc", "pFedDC", "Zhang et al., Personalized Federated Learning via Dual-Prompt Optimization and Cross " +
		"Fusion, arXiv 2506.21144", false, newPFedDC, unstated},
	{"pfedprompt", "pFedPrompt", "Guo et al., pFedPrompt: Learning Personalized Prompt for Vision-Language Models, " +
		"WWW 2023", false, newPFedPrompt, promptTraffic},
	{"powder", "Powder (adapted)", "after Piao et al., Federated Continual Learning via Prompt-based Dual Knowledge " +
		"Transfer, ICML 2024", false, newPowder, unstated},
	{"promptfl", "PromptFL", "Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, TMC " +
		"2023", false, newPromptFL, promptTraffic},
	{"sdfed", "SDFed", "Di et al., SDFed: Bridging Local-Global Discrepancy via Subspace Refinement and Divergence " +
		"Control in Federated Prompt Learning, arXiv 2602.08590", false, newSDFed, unstated},
	{"uopp", "UOPP (adapted)", "after Ma'sum et al., UOPP, ICLR 2025", false, newUOPP, unstated},
	{"zeroshot", "zero-shot CLIP", "Radford et al., Learning Transferable Visual Models, ICML 2021", false, newZeroShot,
		unstated},
	{"appr", "FedAPPR's terms", "Model-Heterogeneous Federated Prompt Learning, under review", true, newAppr,
		apprTraffic},
	{"dp", "DP-FedAvg", "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018", true,
		newDP, unstated},
	{"feddyn", "FedDyn", "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021", true, newFedDyn,
		unstated},
	{"fedntd", "FedNTD", "Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated " +
		"Learning, NeurIPS 2022", true, newFedNTD, unstated},
	{"fedopt", "FedOpt", "Reddi et al., Adaptive Federated Optimization, ICLR 2021", true, newFedOpt, unstated},
	{"fedproto", "FedProto", "Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI " +
		"2022", true, newFedProto, protoTraffic},
	{"fedprox", "FedProx", "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020", true, newFedProx,
		unstated},
	{"ggtpc", "GGTPC", "Luo et al., Geometric Prior-Guided Federated Prompt Calibration, arXiv 2512.07208", true,
		newGGTPC, unstated},
	{"moon", "MOON", "Li et al., Model-Contrastive Federated Learning, CVPR 2021", true, newMOON, unstated},
	{"robust", "robust aggregation", "Yin et al., Byzantine-Robust Distributed Learning, ICML 2018; Blanchard et " +
		"al., Machine Learning with Adversaries, NeurIPS 2017", true, newRobust, unstated},
	{"scaffold", "SCAFFOLD", "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, " +
		"ICML 2020", true, newSCAFFOLD, unstated},
}

// Find returns the row of a name.
func Find(name string) (Entry, error) {
	i := slices.IndexFunc(Table, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return Entry{}, fmt.Errorf("there is no method %q; there are %s", name, strings.Join(names(nil), ", "))
	}
	return Table[i], nil
}

func names(wrapper *bool) []string {
	var out []string
	for _, e := range Table {
		if wrapper == nil || e.Wrapper == *wrapper {
			out = append(out, e.Name)
		}
	}
	return out
}

// Build makes a carrier, wraps it, inner wrapper first, and hands every option to the layer that knows it.
func Build(name string, with []string, options map[string]any) (method.Method, error) {
	yes, no := true, false
	stack := []Entry{}
	for i, n := range append([]string{name}, with...) {
		e, err := Find(n)
		switch {
		case err != nil:
			return nil, err
		case i == 0 && e.Wrapper:
			return nil, fmt.Errorf("method: %s is a wrapper; put it under with: and choose one of %s", n,
				strings.Join(names(&no), ", "))
		case i > 0 && !e.Wrapper:
			return nil, fmt.Errorf("with: %s is no wrapper; wrappers are %s", n, strings.Join(names(&yes), ", "))
		case slices.ContainsFunc(stack, func(s Entry) bool { return s.Name == n }):
			return nil, fmt.Errorf("with: %s is listed twice", n)
		}
		stack = append(stack, e)
	}
	layers := make([]layer, len(stack))
	for i, e := range stack {
		layers[i] = e.New()
	}
	if err := decode(stack, layers, options); err != nil {
		return nil, err
	}
	for i, l := range layers[:len(layers)-1] {
		if _, ok := l.(interface{ outermost() }); ok {
			return nil, fmt.Errorf("with: %s must be the last; %s outside it would see the uploads as they came",
				stack[i].Name, stack[i+1].Name)
		}
	}
	var m method.Method
	for i, l := range layers {
		var err error
		if m, err = l.build(m); err != nil {
			return nil, fmt.Errorf("%s: %w", stack[i].Name, err)
		}
	}
	return m, nil
}
