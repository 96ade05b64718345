// Package averaged holds methods that learn text prompts which the server averages: every client is tested with the
// average. A method that also keeps a prompt on each client belongs into package personalized. It imports packages of
// federation/methods/parts, and no other group of methods.
package averaged

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{coCoOpDef, fedAPTDef, fedTPGDef, gptflDef, kgCoOpDef, plotDef, prodaDef, proGradDef,
	promptFLDef, tripDef}
