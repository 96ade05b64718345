package engine

import (
	"path/filepath"

	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/atomicfile"
)

// keepConfusion writes the confusion matrix of a round that may be the result, before the round counts.
func keepConfusion(e *spec.Experiment, set Settings, s *Server, round int) error {
	if s.Confusion == nil || s.Confusion.Round != round {
		return nil
	}
	s.Confusion.Classes = e.Classes
	if set.Dir == "" {
		return nil
	}
	return atomicfile.Write(filepath.Join(set.Dir, record.ConfusionFile), atomicfile.JSON(s.Confusion, ""))
}
