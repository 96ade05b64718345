package method_test

import (
	"reflect"
	"testing"

	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

// Placeholders whose values differ in any one field have different signatures; so have the empty value and a value with
// any field set. A rebuilt placeholder has its earlier value, with the new nodes.
func TestEveryFieldOfAPlaceholderIsInItsSignature(t *testing.T) {
	g := graph.New()
	node := func(name string) graph.Node { return g.Input(name, graph.Float, graph.Static(2)) }
	a, b := node("a"), node("b")
	changes := clip.BlockChanges{
		LowRank:  []clip.LowRank{{Block: 1, Map: clip.Query, A: a, B: b}},
		Adapters: []clip.Adapter{{Block: 2, Place: clip.Sequential, Layers: []clip.Layer{{W: a, B: b}}, Scale: 0.1}},
	}
	for _, full := range []any{
		method.Prompt{Ctx: a, Deep: []graph.Node{{}, b}, Changes: changes, Position: "end"},
		method.PromptedImages{Pixels: a, Prompts: method.VisionPrompts{Pixels: b, Tokens: a, Deep: []graph.Node{b},
			Changes: changes}},
		method.HandTexts{Templates: []string{"a {}", "b"}, Of: map[string]string{"a": "b"}}, method.Words{Text: "a b"},
		method.PerExample{X: a},
	} {
		seen := map[[32]byte]any{}
		for _, v := range append(variants(t, reflect.ValueOf(full), b), reflect.ValueOf(full)) {
			n := g.Placeholder(v.Interface(), graph.Float, []int{2})
			if got := n.Op().Placeholder(); !reflect.DeepEqual(got, v.Interface()) {
				t.Errorf("the placeholder of %#v has the value %#v", v, got)
			}
			sum, err := graph.Signature(graph.Output{Name: "y", Node: n})
			goldentest.NoError(t, err)
			if other, ok := seen[sum]; ok {
				t.Errorf("%#v and %#v have one signature", other, v)
			}
			seen[sum] = v.Interface()
		}
		others := map[graph.Node]graph.Node{a: node("c"), b: node("d")}
		rebuilt := graph.Transform([]graph.Node{g.Placeholder(full, graph.Float, []int{2})}, func(op *graph.Op,
			_ []graph.Node) []graph.Node {
			if n, ok := others[op.Out[0]]; ok {
				return []graph.Node{n}
			}
			return nil
		})[0].Op().Placeholder()
		before, after := graph.NodesOf(full), graph.NodesOf(rebuilt)
		for i, n := range before {
			if after[i] != others[n] {
				t.Errorf("%T: node %d of the rebuilt value is %v", full, i, after[i])
			}
		}
		if reflect.TypeOf(full) != reflect.TypeOf(rebuilt) || len(before) != len(after) {
			t.Errorf("%#v was rebuilt as %#v", full, rebuilt)
		}
	}
}

// variants returns copies of a value, each with one field changed, at any depth.
func variants(t *testing.T, v reflect.Value, other graph.Node) (out []reflect.Value) {
	t.Helper()
	add := func(change func(reflect.Value)) {
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		change(c)
		out = append(out, c)
	}
	_, isNode := v.Interface().(graph.Node)
	switch k := v.Kind(); {
	case isNode:
		for _, n := range []graph.Node{other, {}} {
			if n != v.Interface() {
				add(func(c reflect.Value) { c.Set(reflect.ValueOf(n)) })
			}
		}
	case k == reflect.Struct:
		for i := range v.NumField() {
			for _, f := range variants(t, v.Field(i), other) {
				add(func(c reflect.Value) { c.Field(i).Set(f) })
			}
		}
	case k == reflect.Slice:
		for n := range v.Len() {
			add(func(c reflect.Value) { c.Set(v.Slice(0, n)) })
		}
		add(func(c reflect.Value) {
			c.Set(reflect.Append(v.Slice3(0, v.Len(), v.Len()), reflect.Zero(v.Type().Elem())))
		})
		for i := range v.Len() {
			for _, e := range variants(t, v.Index(i), other) {
				add(func(c reflect.Value) {
					c.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
					c.Index(i).Set(e)
				})
			}
		}
	case k == reflect.Map:
		add(func(c reflect.Value) { c.Set(reflect.Zero(v.Type())) })
		add(func(c reflect.Value) { c.Set(reflect.ValueOf(map[string]string{"a": "b", "b": "a"})) })
		add(func(c reflect.Value) { c.Set(reflect.ValueOf(map[string]string{`a":"b", "b`: "a"})) })
	case k == reflect.String:
		add(func(c reflect.Value) { c.SetString(v.String() + `", After:0`) })
		add(func(c reflect.Value) { c.SetString(v.String() + "\x00") })
	case v.CanInt():
		add(func(c reflect.Value) { c.SetInt(v.Int() + 1) })
	case v.CanFloat():
		add(func(c reflect.Value) { c.SetFloat(v.Float() * (1 + 1e-15)) })
		add(func(c reflect.Value) { c.SetFloat(1) })
	case k == reflect.Bool:
		add(func(c reflect.Value) { c.SetBool(!v.Bool()) })
	default:
		t.Fatalf("a signature says nothing of a field of type %v", v.Type())
	}
	return out
}
