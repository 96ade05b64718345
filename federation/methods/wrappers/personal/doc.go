// Package personal holds wrappers that give each client parameters of its own: private parts of the base method
// (FedPer, FedRep), a second model (Ditto, APFL) or a mixture of similar clients (FedAMP). It imports packages of
// federation/methods/parts, and no other group of methods.
package personal

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{apflDef, dittoDef, fedAMPDef, fedPerDef, fedRepDef}
