package ort

import (
	"context"
	"errors"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Once compiles a model, runs it and closes it: for models that are needed a single time. See Session.Run.
func Once(ctx context.Context, model *onnx.ModelProto, o Options, feeds tensor.Map,
	outputs ...string) (tensor.Map, error) {
	s, err := NewSession(model, o)
	if err != nil {
		return nil, err
	}
	out, err := s.Run(ctx, feeds, outputs...)
	return out, errors.Join(err, s.Close())
}
