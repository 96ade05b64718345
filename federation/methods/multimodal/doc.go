// Package multimodal holds methods that learn prompts of the text tower and of the image tower together. It imports
// packages of federation/methods/parts, and no other group of methods.
package multimodal

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{fedMGPDef, ivlpDef, mapleDef, pfeddcDef, promptSRCDef}
