package method_test

import (
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// secret is a base method that declares a property; plain wraps a method and declares none.
type secret struct{ method.Base }

func (secret) Params(method.ClientSpec) []method.Param { return nil }
func (secret) Logits(s *method.Scope) graph.Node       { return s.HandText() }
func (secret) Properties() method.Properties           { return method.Properties{SecretNoise: true} }

type plain struct{ method.Method }

// A wrapper that declares no properties does not hide those of the layers inside it.
func TestPropertiesInsideAWrapper(t *testing.T) {
	needsSecret := func(p method.Properties) bool { return p.SecretNoise }
	for depth, m := range []method.Method{secret{}, plain{secret{}}, &plain{plain{secret{}}}} {
		if !method.Any(m, needsSecret) {
			t.Errorf("%d wrappers hide the property", depth)
		}
		layers := 0
		for range method.Layers(m) {
			layers++
		}
		if layers != depth+1 {
			t.Errorf("%d wrappers and a base method are %d layers", depth, layers)
		}
	}
	if method.Any(nil, needsSecret) {
		t.Error("nil has a property")
	}
}
