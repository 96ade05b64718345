// Package trace records every number of a run that an outside program needs to recompute it (trace.json,
// trace.safetensors).
package trace
