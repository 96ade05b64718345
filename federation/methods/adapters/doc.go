// Package adapters holds methods that learn no prompt: zero-shot CLIP, adapters of features and of blocks, and low-rank
// changes of a tower's weights. It imports packages of federation/methods/parts, and no other group of methods.
package adapters

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{fedCLIPDef, fedLoRADef, pFedMMADef, zeroShotDef}
