// Package personalized holds methods that learn a text prompt, a gate or a memory for each client, mostly beside an
// averaged text prompt. Each client is tested with its own parameters. It imports packages of federation/methods/parts,
// and no other group of methods.
package personalized

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{coopDef, dpfplDef, fedOTPDef, fedPGPDef, fedPHADef, pFedMoAPDef, pfedpromptDef, powderDef,
	promptFolioDef, sdfedDef, uoppDef}
