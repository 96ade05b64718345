// Package loss holds wrappers that add a term to a client's loss: contrast, distillation, prototypes and FedAPPR's
// terms, and FedAPPR itself, which is PromptFL with these terms. It imports packages of federation/methods/parts, and
// no other group of methods.
package loss

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{apprDef, fedAPPRDef, fedNTDDef, fedProtoDef, moonDef}
