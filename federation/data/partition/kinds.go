package partition

import "slices"

// Kind is a kind of partition.
type Kind struct {
	Name   string `json:"name"`
	About  string `json:"about"`
	Source string `json:"source"`

	allocate, published func(*job) ([]Client, error) // published is nil if no public code is known
	codeSeed            uint64                       // that the public code sets; 0: the experiment's
	drawsShots          bool                         // published draws the few-shot selection, with Python's generator
	domains             bool                         // requires a set with domains
	dirichlet           bool                         // reads Beta
}

var kinds = []Kind{
	{Name: "iid", About: "every class is split evenly", Source: "McMahan et al., AISTATS 2017",
		allocate:  overall(iid),
		published: codeIID},
	{Name: "iid-shots", About: "every client draws its own data.shots examples of every class, so clients overlap in " +
		"training; the rest of the training examples is unused; test examples are split evenly",
		Source: "the IID option of the few-shot split of PromptFL, FedOTP, FedPGP and FedPHA", allocate: iidShots,
		published: codeIIDShots, codeSeed: fewShotSeed, drawsShots: true},
	{Name: "pathological", About: "every class has one owner; clients own about classes/clients classes each; with " +
		"partition.repeat some classes are split among all",
		Source: "the few-shot split of PromptFL, FedOTP, FedPGP and FedPHA", allocate: overall(pathological),
		published: codePathological, codeSeed: fewShotSeed, drawsShots: true},
	{Name: "dirichlet", About: "each class is cut by proportions drawn from a Dirichlet(beta) distribution, the same " +
		"for train and test",
		Source:    "Hsu et al., 2019; cap and minimum as in FedOTP and FedPHA (noniid-labeldir)",
		allocate:  overall(dirichlet),
		published: codeDirichlet, dirichlet: true},
	{Name: "labeluni", About: "every client holds partition.classes classes; the owners of a class hold shares drawn " +
		"from U(0.4, 0.6) and normalised, the same for train and test",
		Source: "noniid-labeluni of FedOTP and FedPHA", allocate: overall(labelSkew(uniformWeight)),
		published: codeLabelUniform},
	{Name: "classes", About: "every client holds partition.classes classes; the owners of a class hold equal shares",
		Source: "Li et al., ICDE 2022: noniid-#labelK of FedOTP and FedPHA", allocate: overall(labelSkew(evenWeight)),
		published: codeLabelClasses},
	{Name: "pachinko", About: "every client draws a mix Dirichlet(beta) of superclasses and Dirichlet(fine_beta) of " +
		"classes in each, and as many examples of train and test together as the others",
		Source: "Li and McCallum, ICML 2006; Reddi et al., ICLR 2021: noniid-labeldir100 of FedOTP", allocate: pachinko,
		published: codePachinko, codeSeed: pachinkoSeed, dirichlet: true},
	{Name: "sample", About: "every client draws a sample of partition.share of every list by itself, so clients " +
		"overlap and examples may stay unused; its mix of classes is Dirichlet(beta)",
		Source: "our reading of \"each client randomly assigned 10 % of the dataset\" in FedPHA and SDFed; mix as in " +
			"Hsu et al., 2019", allocate: overall(sample), dirichlet: true},
	{Name: "domain", About: "clients hold one domain each; inside a domain every class is split evenly",
		Source: "FedPHA, pFedDC", allocate: eachDomain(iid), published: codeDomain, domains: true},
	{Name: "domain-dirichlet", About: "clients hold one domain each; inside a domain as dirichlet",
		Source: "FedPHA, SDFed, pFedDC", allocate: eachDomain(dirichlet), published: codeDomainDirichlet,
		domains:   true,
		dirichlet: true},
	{Name: "lds", About: "label and domain skew: a Dirichlet(beta) draw per class over the clients says which share " +
		"of that class of its own domain a client holds; the rest is unused",
		Source: "Office-Home-LDS of GGEUR (CVPR 2025), PACS-LDS and Office-Caltech-LDS of GGTPC", allocate: lds,
		published: codeLDS, domains: true, dirichlet: true},
}

// Kinds returns the table of partitions.
func Kinds() []Kind { return slices.Clone(kinds) }
