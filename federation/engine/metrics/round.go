package metrics

import (
	"maps"
	"slices"
	"strings"
)

// Round holds the values of a round that definitions read, in one of its evaluations.
type Round struct {
	Number          int                    // from 0
	Evaluation      *Evaluation            // of the clients' own test data; nil where the round has none
	Sets            map[string]*Evaluation // of evaluation sets, by name
	NewClients      map[string]*Evaluation // of clients that never trained, by number of steps
	Validation      *Evaluation            // of validation data; nil without any
	BaseToNew       *Generalisation        // nil without evaluation sets base and new
	Attacked        bool                   // some clients attack
	Honest, Success *float64               // of an attack, as far as they were tested
	Notes           map[string]float64
	Loss, Seconds   float64
	Bytes           float64 // up and down, all clients
	// From the first round to the end of this one.
	TotalBytes, TotalParameters float64
	Simulated                   *float64 // seconds; nil where none are counted
}

// lookUp finds a name, or the only one that differs from it in nothing but case.
func lookUp[V any](m map[string]V, name string) (V, bool) {
	if v, ok := m[name]; ok {
		return v, true
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if strings.EqualFold(k, name) {
			return m[k], true
		}
	}
	var none V
	return none, false
}

// given reads a number that only some rounds have.
func given(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}
