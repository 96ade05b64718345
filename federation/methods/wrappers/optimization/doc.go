// Package optimization holds wrappers for clients with heterogeneous data: proximal terms, control variates, and steps
// of the server that are no plain mean. It imports packages of federation/methods/parts, and no other group of methods.
package optimization

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group, in any order. A new method is its file and a name here.
var Methods = []layer.Def{fedDynDef, fedNovaDef, fedOptDef, fedProxDef, qfflDef, scaffoldDef}
