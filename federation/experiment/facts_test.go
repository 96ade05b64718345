package experiment

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/experiment/facts"
	"promptfed/runtime/goldentest"
)

// private returns an experiment under differential privacy.
func private(clients, rounds int, options map[string]any) Config {
	c := Defaults()
	c.Partition.Clients, c.Train.Rounds = clients, rounds
	c.With, c.Options = []string{"dp"}, map[string]any{"dp": options}
	return c
}

func factsOf(t *testing.T, c Config, l Link) facts.Facts {
	t.Helper()
	f, err := c.Facts(l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func value(t *testing.T, f facts.Facts, name string) any {
	t.Helper()
	x, ok := f.Find(name)
	if !ok {
		t.Fatalf("no fact %s", name)
	}
	return x.Value
}

// The epsilons of facts are those of Google's accountant for the same rounds
// (federation/privacy/testdata/epsilon.json), computed from the configuration alone.
func TestFactsReckonEpsilon(t *testing.T) {
	near := func(f facts.Facts, name string, want float64) {
		t.Helper()
		if got, _ := value(t, f, name).(float64); !(math.Abs(got-want) <= 1e-6*want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	c := private(20, 100, map[string]any{"noise": 4.0, "delta": 1e-4, "where": "client"})
	c.Participation = 0.5
	near(factsOf(t, c, Link{}), "dp.epsilon", 32.46726191762625) // 10 of 20, fixed
	c = private(20, 100, map[string]any{"noise": 4.0, "delta": 1e-4})
	c.Participation, c.Sampling = 0.5, poisson
	f := factsOf(t, c, Link{})
	near(f, "dp.epsilon", 5.623764292008572) // 10 of 20, Poisson
	if v := value(t, f, "dp.epsilon_server"); v != math.Inf(1) {
		t.Errorf("with where: server the server sees updates without noise, and has epsilon %v", v)
	}
	// Four clients with least: 1 each add a noise of 16/√4 = 8 clips to their upload; 4 of 4 with 8 cost this.
	c = private(4, 15, map[string]any{"noise": 16.0, "delta": 1e-2, "where": "client", "least": 1.0})
	near(factsOf(t, c, Link{}), "dp.epsilon_server", 2.6403448297815535)
	// Three of them are in every sum, with a noise of 16 √(3/4): a sum reveals less than one upload alone.
	c.SecureAggregation.Threshold = 0.75
	f = factsOf(t, c, Link{})
	if v := value(t, f, "dp.epsilon_server").(float64); !(v > value(t, f, "dp.epsilon").(float64) && v < 2.64) {
		t.Errorf("against the server the sums of three have epsilon %v", v)
	}
	if n := value(t, f, "secure_aggregation.least"); n != 3 {
		t.Errorf("sums of %v", n)
	}
	for _, name := range []string{"dp.epsilon", "dp.epsilon_unsampled", "dp.epsilon_server"} {
		if v := value(t, factsOf(t, c, Link{Insecure: true}), name); v != math.Inf(1) {
			t.Errorf("with noise that everybody can take off %s is %v", name, v)
		}
	}
}

// A round of noise on the gradients of two factors costs as much as one of dp with √2 times less noise for all
// clients. Noise that everybody can remove hides nothing, and without noise there is no number.
func TestLocalEpsilon(t *testing.T) {
	c := Defaults()
	c.Method, c.Train.Rounds = "dpfpl", 8
	c.Options = map[string]any{"noise": 4 * math.Sqrt2, "steps": 1, "delta": 1e-3}
	same := c
	same.Method, same.With, same.Options = "promptfl", []string{"dp"}, map[string]any{"noise": 4.0, "delta": 1e-3}
	want := value(t, factsOf(t, same, Link{}), "dp.epsilon").(float64)
	if e := value(t, factsOf(t, c, Link{}), "dp.epsilon_local").(float64); math.Abs(e-want) > 1e-9*want {
		t.Errorf("epsilon %v, of dp %v", e, want)
	}
	if e := value(t, factsOf(t, c, Link{Insecure: true}), "dp.epsilon_local"); e != math.Inf(1) {
		t.Errorf("with noise that everybody can take off it is %v", e)
	}
	if e := value(t, factsOf(t, same, Link{}), "dp.epsilon_local"); e != nil {
		t.Errorf("promptfl has %v", e)
	}
}

// The requirements that hold, and those that do not, of a method with secure aggregation and without differential
// privacy, and their line.
func TestRequirements(t *testing.T) {
	c := Defaults()
	c.Method, c.With, c.SecureAggregation.Threshold = "fedpha", []string{"fedprox"}, 0.6
	c.Partition.Clients = 5
	f := factsOf(t, c, Link{TLS: true})
	keys := map[string]any{"train.epochs": 2, "options.tokens": 4}
	for text, want := range map[string]string{
		"secure_aggregation, method=fedpha,rounds <= 10": "",
		"method!=promptfl,with=fedprox,dp=off,tls":       "",
		"train.epochs<3,options.tokens=4,dp.where=none":  "",
		"secure_aggregation.threshold>=0.6,clients>4":    "",
		"secure_aggregation,dp.epsilon<=8": "dp.epsilon<=8 does not hold: the server has dp.epsilon: " +
			"none",
		"method=promptfl": "--require method=promptfl does not hold: the server",
		"with!=fedprox":   "the server has with: fedprox",
		"dp":              "the server has dp: off",
		"clients<5":       "the server has clients: 5",
		"method>5":        "the server has method: fedpha",
		"tests.confusion": "the server has tests.confusion: off",
		"colour=red":      "unknown key; known are method, with, rounds",
		"secure_aggregation.threshold=0.60,train.epochs=2": "",
	} {
		list, err := facts.ParseRequirements(text)
		if err == nil {
			err = f.Meets(list, keys, "the server")
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"dp.epsilon<=much", "a b", "=3", "dp<", "dp==3"} {
		if list, err := facts.ParseRequirements(text); err == nil {
			t.Errorf("%q is read as %v", text, list)
		}
	}
}

// Facts survive the encoding of a status.
func TestFactsAreEncoded(t *testing.T) {
	f := factsOf(t, private(20, 100, map[string]any{"delta": 1e-3}), Link{})
	b := goldentest.JSON(t, f)
	var back facts.Facts
	goldentest.NoError(t, json.Unmarshal(b, &back))
	for i, x := range f {
		if back[i].Name != x.Name || back[i].Text() != x.Text() {
			t.Errorf("%s: %q became %q", x.Name, x.Text(), back[i].Text())
		}
	}
	if v := value(t, back, "with"); !reflect.DeepEqual(v, []string{"dp"}) {
		t.Errorf("with: %v", v)
	}
}
