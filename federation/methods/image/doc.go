// Package image holds methods that learn prompts of the image tower alone; class features are those of hand-written
// prompts or of class attributes. It imports packages of federation/methods/parts, and no other group of methods.
package image

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{fedHPLDef, fedMVPDef, fedPRDef, fedVPTDef}
