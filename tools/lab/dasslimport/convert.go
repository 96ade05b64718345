package dasslimport

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/data/sets"
)

// convert converts a Dassl value to a promptfed value. The error states why no conversion exists. A nil result means
// that no line is written.
type convert func(v any) (any, error)

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return 0, false
}

func keep(v any) (any, error) { return v, nil }

func whole(least int) convert {
	return func(v any) (any, error) {
		if n, ok := v.(int); ok && n >= least {
			return n, nil
		}
		return nil, fmt.Errorf("expected a whole number of at least %d", least)
	}
}

func number(least float64) convert {
	return func(v any) (any, error) {
		if x, ok := float(v); ok && x >= least {
			return v, nil
		}
		return nil, fmt.Errorf("expected a number of at least %g", least)
	}
}

func positive(v any) (any, error) {
	if x, ok := float(v); ok && x > 0 {
		return v, nil
	}
	return nil, fmt.Errorf("expected a number above 0")
}

func seed(v any) (any, error) {
	if n, ok := v.(int); ok && n > 0 {
		return n, nil
	}
	return nil, fmt.Errorf("their code is not seeded then; promptfed always is")
}

func shots(v any) (any, error) {
	if v == -1 {
		return 0, nil
	}
	return whole(1)(v)
}

func truth(v any) (any, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	return nil, fmt.Errorf("expected True or False")
}

func text(v any) (any, error) {
	if s, ok := v.(string); ok && s != "" {
		return s, nil
	}
	return nil, fmt.Errorf("expected text")
}

func phrase(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "_", " "), nil
	case bool:
		if !v {
			return "", nil
		}
	}
	return nil, fmt.Errorf("expected words")
}

// one accepts the given words in any letter case.
func one(words ...string) convert {
	return func(v any) (any, error) {
		if s, ok := v.(string); ok && slices.Contains(words, strings.ToLower(s)) {
			return strings.ToLower(s), nil
		}
		return nil, fmt.Errorf("supported: %s", strings.Join(words, ", "))
	}
}

func mapped(words map[string]string) convert {
	return func(v any) (any, error) {
		s, _ := v.(string)
		if is, ok := words[strings.ToLower(s)]; ok {
			return is, nil
		}
		return nil, fmt.Errorf("it has no equivalent")
	}
}

var position = one("end", "middle", "front")

// only accepts values that describe promptfed's fixed behaviour.
func only(why string, values ...any) convert {
	return func(v any) (any, error) {
		for _, w := range values {
			if reflect.DeepEqual(v, w) {
				return nil, nil
			}
		}
		return nil, fmt.Errorf("%s", why)
	}
}

func none(why string) convert { return func(any) (any, error) { return nil, fmt.Errorf("%s", why) } }

func near(why string, want ...float64) convert {
	return func(v any) (any, error) {
		list, _ := v.([]any)
		for i, w := range want {
			if len(list) != len(want) {
				return nil, fmt.Errorf("%s", why)
			} else if x, ok := float(list[i]); !ok || math.Abs(x-w) > 1e-6 {
				return nil, fmt.Errorf("%s", why)
			}
		}
		return nil, nil
	}
}

func wrapper(v any) (any, error) {
	for _, w := range wrappers {
		if v != w.theirs {
			continue
		} else if w.ours == nil {
			return nil, nil
		}
		return w.ours, nil
	}
	return nil, fmt.Errorf("supported: fedavg, FedOTP, fedprox")
}

func backbone(v any) (any, error) {
	s, _ := v.(string)
	if is, ok := backbones[strings.ToLower(s)]; ok {
		return []string{is}, nil
	}
	return nil, fmt.Errorf("supported: ViT-B/16, ViT-B/32, RN50, RN101; for others convert the checkpoint and name " +
		"its bundle")
}

var others = regexp.MustCompile(`[^a-z0-9]`)

func dataset(v any) (any, error) {
	s, _ := v.(string)
	s = others.ReplaceAllString(strings.ToLower(s), "")
	if s == "domainnet" {
		return nil, fmt.Errorf("FedOTP's DomainNet has FedBN's ten classes (domainnet10 here), that of others 345 " +
			"(domainnet)")
	}
	if is, ok := datasets[s]; ok {
		s = is
	}
	for _, k := range sets.Kinds() {
		if k.Name == s && s != "list" && s != "folder" && s != "parquet" && s != "synthetic" {
			return s, nil
		}
	}
	return nil, fmt.Errorf("unknown data set; promptfed list datasets shows all")
}
