package experiment

import (
	"context"
	"encoding/json"
	"image/color"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment/identity"
	"promptfed/runtime/filetest"
)

// configured returns the part of an identity that follows from a configuration alone.
func configured(t *testing.T, c Config) identity.Identity {
	t.Helper()
	v, err := (&Protocol{Config: c, Experiment: &spec.Experiment{}}).values()
	if err != nil {
		t.Fatal(err)
	}
	return identity.Of(c.Seed, v)
}

// allSectionsOn returns a configuration with every section on.
func allSectionsOn() Config {
	c := Defaults()
	c.Attack.Kind, c.SimulatedTime.Speeds, c.SecureAggregation.Threshold = "scaled", "constant", 0.6
	c.Data.LabelNoise.Kind = "pair"
	return c
}

// changedValue returns a value of the same type that differs.
func changedValue(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(v.String() + "x")
	case reflect.Bool:
		out.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		out.SetInt(v.Int() + 1)
	case reflect.Uint64:
		out.SetUint(v.Uint() + 1)
	case reflect.Float64:
		out.SetFloat(v.Float() + 1)
	case reflect.Slice:
		out.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		out.SetMapIndex(reflect.ValueOf("new"), reflect.New(v.Type().Elem()).Elem())
	default:
		t.Fatalf("no other value of a %s is known", v.Type())
	}
	return out
}

// Every key of the configuration changes the identity, unless a list excludes the key. A new key is therefore part of
// the identity.
func TestEveryKeyIdentifies(t *testing.T) {
	c := allSectionsOn()
	before := configured(t, c)
	seen := map[string]bool{}
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		for i := range v.NumField() {
			f, field := v.Type().Field(i), v.Field(i)
			name := f.Tag.Get("config")
			switch {
			case name == ",squash":
				walk(at, field)
			case name == "":
			case field.Kind() == reflect.Struct:
				walk(at+name+".", field)
			default:
				key := at + name
				seen[key] = true
				was := reflect.ValueOf(field.Interface())
				field.Set(changedValue(t, field))
				changed := configured(t, c).Fingerprint != before.Fingerprint
				field.Set(was)
				if changed != IsIdentityKey(key) {
					t.Errorf("%s: another value gives another fingerprint: %v, want %v", key, changed, !changed)
				}
			}
		}
	}
	walk("", reflect.ValueOf(&c).Elem())
	if configured(t, c).Fingerprint != before.Fingerprint || len(seen) < 100 {
		t.Fatalf("%d keys were changed and put back", len(seen))
	}
	for key := range unidentifying {
		build := func(k string) bool { return identity.Within(k, []string{key}) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), build) {
			t.Errorf("unidentifying lists %s, which is no key", key)
		}
	}
}

// The contents of a section that is off change nothing. Neither does an option written out with its default, nor the
// spelling of a number.
func TestSpellingDoesNotIdentify(t *testing.T) {
	a, b := Defaults(), Defaults()
	b.Attack.Strength, b.SimulatedTime.Step, b.SecureAggregation.Bits, b.Data.LabelNoise.Rate = 3, 9, 12, 0.1
	if configured(t, a).Fingerprint != configured(t, b).Fingerprint {
		t.Error("values of sections that are off count")
	}
	opened := func(options map[string]any) identity.Identity {
		c := smallConfig("promptfl")
		c.With, c.Options = []string{"fedprox"}, options
		return identityOf(t, open(t, c).Task)
	}
	plain := opened(nil)
	mu := json.Number(plain.Values["options.fedprox.mu"])
	value, err := mu.Float64()
	if err != nil {
		t.Fatalf("options.fedprox.mu is %q", mu)
	}
	if out := opened(map[string]any{"mu": value}); out.Fingerprint != plain.Fingerprint {
		t.Errorf("an option's default written out: %v", plain.Differences(out))
	}
	if out := opened(map[string]any{"mu": value + 1}); out.Fingerprint == plain.Fingerprint {
		t.Error("another value of an option is the same experiment")
	}
}

func identityOf(t *testing.T, b *Task) identity.Identity {
	t.Helper()
	id, err := b.Identity(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The identity of an experiment covers the contents of its images and backbones, not their paths. A copy of the data
// under other names has the same identity, and so have other threads and another seed. Another pixel, class name,
// template or backbone has another identity.
func TestIdentityOfContents(t *testing.T) {
	root := t.TempDir()
	write := func(root, name string, b byte) {
		filetest.Write(t, filepath.Join(root, filepath.FromSlash(name)), datatest.PNG(t, color.Gray{Y: b}))
	}
	fill := func(root, suffix string, other byte) {
		for i, class := range []string{"cat", "dog"} {
			for k := range 12 {
				b := byte(20*k + 5*i)
				if i == 1 && k == 7 {
					b += other
				}
				write(root, class+"/"+string(rune('a'+k))+suffix+".png", b)
			}
		}
	}
	fill(root, "", 0)
	build := func(change func(*Config)) identity.Identity {
		c := smallConfig("promptfl")
		c.Data.Set, c.Data.Root, c.Partition.Clients = "folder", root, 2
		change(&c)
		b := taskOf(t, c)
		return identityOf(t, b)
	}
	want := build(func(*Config) {})
	moved, changed := t.TempDir(), t.TempDir()
	fill(moved, "-renamed", 0)
	fill(changed, "", 1)
	for what, change := range map[string]func(*Config){
		"a copy with other names": func(c *Config) { c.Data.Root = moved },
		"other threads":           func(c *Config) { c.Runtime.Workers, c.Runtime.Threads = 3, 2 },
		"another seed":            func(c *Config) { c.Seed = 9 },
		"another name":            func(c *Config) { c.Name = "other" },
	} {
		if got := build(change); !got.Same(want) {
			t.Errorf("%s: %v", what, want.Differences(got))
		}
	}
	for key, change := range map[string]func(*Config){
		"data":           func(c *Config) { c.Data.Root = changed },
		"classes":        func(c *Config) { c.Data.ClassNames = map[string]string{"cat": "tiger"} },
		"data.template":  func(c *Config) { c.Data.Template = "one {}." },
		"backbones":      func(c *Config) { c.Backbones = []string{"tiny-rn50"} },
		"train.rounds":   func(c *Config) { c.Train.Rounds++ },
		"partition.kind": func(c *Config) { c.Partition.Kind = "dirichlet" },
	} {
		got := build(change)
		named := func(d identity.Difference) bool { return d.Key == key }
		if got.Same(want) || !slices.ContainsFunc(want.Differences(got), named) {
			t.Errorf("%s: %v", key, want.Differences(got))
		}
		tested := slices.Contains([]string{"data", "classes", "partition.kind"}, key)
		if (got.Evaluation != want.Evaluation) != tested {
			t.Errorf("%s: another evaluation: %v, want %v", key, !tested, tested)
		}
	}
}
