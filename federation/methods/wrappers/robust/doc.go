// Package robust holds wrappers against bad participants and bad labels: robust aggregation of uploads, and losses that
// tolerate wrong labels. It imports packages of federation/methods/parts, and no other group of methods.
package robust

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{gceDef, nlPromptDef, robustDef}
