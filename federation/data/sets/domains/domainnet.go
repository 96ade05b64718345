package domains

import (
	"strings"

	"promptfed/federation/data/sets/source"
)

var domainNetDomains = []domainName{{"clipart", nil}, {"infograph", nil}, {"painting", nil}, {"quickdraw", nil},
	{"real", nil}, {"sketch", nil}}

var domainNet = &domainSet{title: "DomainNet", count: 345, partial: true,
	folders: []string{"domainnet", "domain_net"}, inner: []string{"images", "domainnet"}, domains: domainNetDomains,
	// The published labels follow an alphabetical order that ignores punctuation: cello, cell_phone; trumpet, t-shirt,
	// umbrella.
	order: func(a, b string) int { return strings.Compare(source.NormalizeName(a), source.NormalizeName(b)) }}

// domainNet10 is the subset of FedBN (Li et al., ICLR 2021).
var domainNet10 = &domainSet{title: "DomainNet's ten classes", count: 10, partial: true,
	folders: domainNet.folders, inner: domainNet.inner, domains: domainNetDomains,
	classes: []string{"bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill",
		"wine_glass", "zebra"}}
