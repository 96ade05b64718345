package layer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

type Nested struct {
	Low  int `config:"low" in:"0..10" help:"low"`
	High int `config:"high" in:"low..tokens" help:"high"`
}

func (n Nested) Check() error {
	if n.Low == 7 {
		return errors.New("low is 7")
	}
	return nil
}

// base is a method with an option of every kind.
type base struct {
	method.Base
	Nested `config:",squash"`

	Rate float64   `config:"rate" in:"0<..1" help:"rate"`
	Each []float64 `config:"each" in:"0|2..3" help:"each"`
	Kind string    `config:"kind" in:"a|b" help:"kind: a or b"`
	Only int       `config:"only" in:"1|4|6..hidden" help:"only"`
	Word string    `config:"word" in:"x|y" help:"word"`
	None bool      `config:"none" help:"learns nothing"`
	Own  bool      `config:"own" help:"shares nothing"`
}

func (b base) Params(method.ClientSpec) []method.Param {
	if b.None {
		return nil
	}
	p := method.Param{Name: "p", Shape: []int{1}}
	if b.Own {
		p.Owner = method.Private
	}
	return []method.Param{{Name: "q", Shape: []int{1}, Owner: method.Private}, p}
}

func (base) Logits(s *method.Scope) graph.Node { return s.Image().Add(s.Param("p")) }

var def = Def{Name: "base", Default: base{Nested: Nested{1, 2}, Rate: 0.5, Each: []float64{0}, Kind: "a", Only: 1,
	Word: "x"}}

// Bounds belong to their range, except one with <. Errors state the whole rule, in the option's own type.
func TestOptionsWithinBounds(t *testing.T) {
	for _, c := range []struct {
		change func(b *base)
		want   string // "": allowed
	}{
		{func(b *base) { b.Low, b.High = 0, 0 }, ""}, {func(b *base) { b.Low, b.High = 10, 1024 }, ""},
		{func(b *base) { b.Low = -1 }, "option low is -1; it must lie between 0 and 10"},
		{func(b *base) { b.Low, b.High = 11, 11 }, "option low is 11; it must lie between 0 and 10"},
		{func(b *base) { b.High = 1025 }, "option high is 1025; it must lie between 1 and 1024"},
		{func(b *base) { b.Low, b.High = 5, 4 }, "option high is 4; it must lie between 5 and 1024"},
		{func(b *base) { b.Low, b.High = 7, 7 }, "low is 7"},
		{func(b *base) { b.Rate = 1 }, ""},
		{func(b *base) { b.Rate = 0 }, "option rate is 0; it must be above 0 and at most 1"},
		{func(b *base) { b.Each = []float64{0, 2, 3} }, ""},
		{func(b *base) { b.Each = nil }, "option each is empty; give at least one value"},
		{func(b *base) { b.Each = []float64{2, 1} }, "option each is 1; it must be 0 or lie between 2 and 3"},
		{func(b *base) { b.Only = 4 }, ""},
		{func(b *base) { b.Only = 2 }, "option only is 2; it must be 1 or be 4 or lie between 6 and 65536"},
		{func(b *base) { b.Kind = "c" }, `option kind is "c"; use a or b`},
		{func(b *base) { b.Kind, b.Only = "", 0 }, `option kind is ""; use a or b; option only is 0; it ` +
			"must be 1 or be 4 or lie between 6 and 65536"},
	} {
		b := def.New().(*base)
		c.change(b)
		_, err := def.Build(b, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if b := def.Default.(base); b.Low != 1 {
		t.Error("a copy changed the default")
	}
}

// A listing appends the words of an option that its help lacks.
func TestOptionsAreListed(t *testing.T) {
	var got []string
	for _, o := range def.Options() {
		got = append(got, strings.Join([]string{o.Name, o.Type, o.Default, o.Help}, ","))
	}
	const want = "low,int,1,low high,int,2,high rate,float64,0.5,rate each,[]float64,[0],each " +
		"kind,string,a,kind: a or b only,int,1,only word,string,x,word: x, y " +
		"none,bool,false,learns nothing own,bool,false,shares nothing"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
	if names := def.OptionNames(); len(names) != 9 || names[8] != "own" {
		t.Errorf("%v", names)
	}
}

// A file is in a configuration as a data URL, by RFC 2397 with base64; YWJj is abc. Its name has no other characters
// than letters, digits, dots, minus and underscores, and at most 200 of them. 1 MiB is the most content.
func TestFiles(t *testing.T) {
	const url, other = "data:application/octet-stream;name=", "its content is not name and base64"
	for file, want := range map[File]string{
		EmbedFile("a b.onnx", []byte("abc")): `"a_b.onnx" "abc" <nil>`, url + "a;base64,YWJj": `"a" "abc" <nil>`,
		"": "empty; name a file", "a.onnx": `"a.onnx" was not read`, url + "a;base64,?": "its content is not base64",
		url + "a": other, url + ";base64,YWJj": other, url + "a/b;base64,YWJj": other,
		url + File(strings.Repeat("a", 201)) + ";base64,YWJj": other,
		EmbedFile(strings.Repeat("a", 201), nil):              `a" "" <nil>`,
		EmbedFile("a", make([]byte, 1<<20)):                   `\x00" <nil>`,
		EmbedFile("a", make([]byte, 1<<20+1)):                 "has more than 1048576 bytes",
	} {
		name, content, err := file.Content()
		if got := fmt.Sprintf("%q %q %v", name, content, err); !strings.Contains(got, want) {
			t.Errorf("%.60s: %.60s, want %s", file, got, want)
		}
	}
}

// By FedAPPR's table S6 a prompt of 16 tokens and 512 numbers, each way, is 2 * 16 * 512.
func TestPromptTraffic(t *testing.T) {
	if n := PromptTraffic.Numbers(Sizes{Tokens: 16, Width: 512}); n != 16384 {
		t.Error(n)
	}
}

// named has a field of the name that wrappers have, of another type.
type named struct {
	base
	Method string
}

// around is a wrapper; hidden keeps another method than the one that it wraps, and lossy has a loss that cannot be
// built.
type around struct{ method.Method }

type hidden struct{ method.Method }

func (*hidden) Build() (method.Method, error) { return around{around{}}, nil }

type lossy struct{ method.Method }

func (lossy) Loss(s *method.Scope, _ graph.Node) graph.Node { return s.Param("absent") }

func TestWrappers(t *testing.T) {
	b := def.Default.(base)
	for _, c := range []struct {
		def   Def
		inner method.Method
		want  string
	}{
		{Def{Default: around{}}, b, ""},
		{Def{Default: around{}, Suits: RequireLearned("adds")}, b, ""},
		{Def{Default: around{}, Suits: RequireLearned("adds")}, base{None: true},
			"it adds, but the base method learns nothing; remove it"},
		{Def{Default: hidden{}}, b, "its Build must keep the method that it wraps, layer.base, in the field Method, " +
			"which holds layer.around"},
		{Def{Default: lossy{}}, b, `parameter "absent" is used but not declared by Params`},
		{Def{Default: lossy{}}, base{None: true}, ""}, // the loss inside cannot be built either
	} {
		if !c.def.Wrapper() || def.Wrapper() || (Def{Default: named{}}).Wrapper() {
			t.Error("a wrapper is none, or a base method is one")
		}
		m, err := c.def.Build(c.def.New(), c.inner)
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v, want %q", err, c.want)
		case c.want == "" && (err != nil || !reflect.DeepEqual(method.Unwrap(m), c.inner)):
			t.Errorf("%v, %v", m, err)
		}
	}
	inner, has := Of[base](around{b})
	if _, hasLossy := Of[lossy](around{b}); !has || !reflect.DeepEqual(inner, b) || hasLossy {
		t.Error("layers are not found")
	}
	if outer, has := Of[around](around{around{b}}); !has || !reflect.DeepEqual(outer.Method, around{b}) {
		t.Errorf("the outermost layer of two is around %v", outer.Method)
	}
	if NameOf(around{}) != "around" || NameOf(&hidden{}) != "hidden" {
		t.Error("names of layers")
	}
	if err := RequireShared(b); err != nil || strings.Join(SharedNames(b), "") != "p" {
		t.Errorf("%v of %v", err, SharedNames(b))
	}
	goldentest.WantError(t, RequireShared(base{Own: true}), "shares nothing")
}

func TestEnumerateNamesSix(t *testing.T) {
	for list, want := range map[string]string{"": "nothing", "a": "a", "a b c d e f": "a, b, c, d, e, f",
		"a b c d e f g": "a, b, c, d, e, f and 1 more"} {
		if got := Enumerate(strings.Fields(list)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
