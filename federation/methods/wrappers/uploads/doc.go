// Package uploads holds wrappers that change what clients upload: noise of differential privacy and compression. It
// imports packages of federation/methods/parts, and no other group of methods.
package uploads

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{compressDef, dpDef}
