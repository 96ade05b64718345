package experiment

import (
	"context"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/bundle/exported"
	"promptfed/models/tiny"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// The forms of bundles, and the bundled backbones, which are found by name like any other.
func init() {
	bundle.Use(converted.Form, exported.Form(func(m *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, error) {
		return ort.Once(context.Background(), m, ort.Options{WeightsDir: dir}, in)
	}))
	for _, name := range tiny.Names() {
		if files, err := tiny.FS(name); err == nil {
			converted.Embed(name, files)
		}
	}
}
