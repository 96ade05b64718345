package dasslimport

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/data/sets"
)

// conversion converts a Dassl value to a promptfed value. The error states why no conversion exists. A nil result means
// that no line is written.
type conversion func(v any) (any, error)

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return 0, false
}

// keep keeps the values of a type that ok accepts.
func keep[T any](expected string, ok func(v T) bool) conversion {
	return func(v any) (any, error) {
		if is, typed := v.(T); !typed || !ok(is) {
			return nil, errors.New(expected)
		}
		return v, nil
	}
}

// fixed writes nothing for the values that describe promptfed's fixed behaviour.
func fixed(why string, ok func(v any) bool) conversion {
	return func(v any) (any, error) {
		_, err := keep(why, ok)(v)
		return nil, err
	}
}

func whole(least int) conversion {
	return keep(fmt.Sprintf("expected a whole number of at least %d", least), func(n int) bool { return n >= least })
}

var (
	anything conversion = func(v any) (any, error) { return v, nil }
	number              = keep("expected a number of at least 0", func(v any) bool {
		x, ok := float(v)
		return ok && x >= 0
	})
	positive = keep("expected a number above 0", func(v any) bool {
		x, ok := float(v)
		return ok && x > 0
	})
	seed     = keep("their code is not seeded then; promptfed always is", func(n int) bool { return n > 0 })
	truth    = keep("expected True or False", func(bool) bool { return true })
	text     = keep("expected text", func(s string) bool { return s != "" })
	position = one("end", "middle", "front")
)

func shots(v any) (any, error) {
	if v == -1 {
		return 0, nil
	}
	return whole(1)(v)
}

func phrase(v any) (any, error) {
	if s, ok := v.(string); ok {
		return strings.ReplaceAll(s, "_", " "), nil
	}
	if v == false {
		return "", nil
	}
	return nil, errors.New("expected words")
}

// one accepts the given words in any letter case.
func one(words ...string) conversion {
	same := map[string]any{}
	for _, w := range words {
		same[w] = w
	}
	return mapped("supported: "+strings.Join(words, ", "), same)
}

// mapped maps words in any letter case to values.
func mapped(why string, words map[string]any) conversion {
	return func(v any) (any, error) {
		s, _ := v.(string)
		if is, ok := words[strings.ToLower(s)]; ok {
			return is, nil
		}
		return nil, errors.New(why)
	}
}

func only(why string, values ...any) conversion {
	return fixed(why, func(v any) bool {
		return slices.ContainsFunc(values, func(w any) bool { return reflect.DeepEqual(v, w) })
	})
}

func near(why string, want ...any) conversion {
	return fixed(why, func(v any) bool {
		list, _ := v.([]any)
		return slices.EqualFunc(list, want, func(a, b any) bool {
			x, ok := float(a)
			return ok && math.Abs(x-b.(float64)) <= 1e-6
		})
	})
}

// wrappers lists values of --model with promptfed's wrappers.
var wrappers = []struct {
	theirs string
	ours   []string
}{{"fedavg", nil}, {"FedOTP", nil}, {"fedprox", []string{"fedprox"}}}

func wrapper(v any) (any, error) {
	for _, w := range wrappers {
		if v == w.theirs && w.ours != nil {
			return w.ours, nil
		} else if v == w.theirs {
			return nil, nil
		}
	}

	return nil, errors.New("supported: fedavg, FedOTP, fedprox")
}

var backbone = mapped("supported: ViT-B/16, ViT-B/32, RN50, RN101; for others convert the checkpoint and name its "+
	"bundle", map[string]any{"vit-b/16": []string{"vit-b16"}, "vit-b/32": []string{"vit-b32"}, "rn50": []string{"rn50"},
	"rn101": []string{"rn101"}})

var others = regexp.MustCompile(`[^a-z0-9]`)

func dataset(v any) (any, error) {
	name, _ := v.(string)
	name = others.ReplaceAllString(strings.ToLower(name), "")
	if name == "domainnet" {
		return nil, errors.New("FedOTP's DomainNet has FedBN's ten classes (domainnet10 here), that of others 345 " +
			"(domainnet)")
	}

	name = cmp.Or(datasets[name], name)
	published := func(k sets.Kind) bool { return k.Name == name }
	if slices.Contains([]string{"list", "folder", "parquet", "synthetic"}, name) ||
		!slices.ContainsFunc(sets.Kinds(), published) {
		return nil, errors.New("unknown data set; promptfed list datasets shows all")
	}

	return name, nil
}
