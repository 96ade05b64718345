// Package calibration holds GGTPC, the wrapper that changes a client's training examples by statistics of all clients'
// features. It imports packages of federation/methods/parts, and no other group of methods.
package calibration

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{ggtpcDef}
