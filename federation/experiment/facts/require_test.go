package facts

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestParseRequirements(t *testing.T) {
	for text, want := range map[string]string{"": "[]", " , dp": "[dp]",
		"dp, epsilon <= 3.5,a.b_2!=x": "[dp epsilon<=3.5 a.b_2!=x]", "n>-1": "[n>-1]"} {
		if got, err := ParseRequirements(text); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{"Dp": `"Dp" is not a condition; write KEY for what must be on`,
		" ,": `" ," has no condition`, "dp=": "is not a condition", "a==b": "is not a condition",
		"epsilon<x": `"epsilon<x" compares with "x", which is not a number`, "dp,a>y": `"a>y" compares with "y"`} {
		if got, err := ParseRequirements(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// What conditions hold of values of each type, below a limit, at it and beyond it.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		value any
		holds string
		not   string
	}{
		{nil, "x=none x!=on", "x x=off x<1 x>=0 x!=none"},
		{true, "x x=on x=true x!=off", "x=off x=false x=1 x<2"},
		{false, "x=off x=false x!=on", "x x=on x=none"},
		{[]string{"a", "b"}, "x x=a x=b x!=c", "x=none x=c x!=a"},
		{[]string{}, "x=none x!=a", "x x=a"},
		{"krum", "x x=krum x!=mean", "x=mean x<1"},
		{"", "x!=a", "x"}, {"none", "x=none", "x"}, {"off", "x=off", "x"},
		{3, "x x=3 x=3.0 x!=4 x<4 x<=3 x>=3 x>2", "x=4 x!=3 x<3 x<=2 x>3 x>=4 x=three"},
		{uint64(2), "x x=2 x<=2", "x>2"},
		{0.5, "x x=0.5 x<0.6 x>=0.5", "x<0.5 x>0.5"}, {0, "x=0 x<=0", "x"}, {0.0, "x>=0", "x"},
		{math.NaN(), "x!=1", "x x<1 x>=1 x=1"},
		{math.Inf(1), "x x>9 x=infinite x>=infinite", "x<9 x!=infinite x<infinite"},
		{[]int{1}, "x=[1]", "x x<2"},
	} {
		for want, list := range map[bool]string{true: c.holds, false: c.not} {
			rs, err := ParseRequirements(strings.ReplaceAll(list, " ", ","))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if r.Holds(c.value) != want {
					t.Errorf("%v of %v: %v", r, c.value, !want)
				}
			}
		}
	}
}

// A condition that does not hold is a line of the error, of a fact or else of a key of the configuration.
func TestMeets(t *testing.T) {
	f := Facts{{Name: "dp", Value: true}, {Name: "epsilon", Value: math.Inf(1)}}
	keys := map[string]any{"train.epochs": 2, "dp": false}
	for text, says := range map[string]string{"dp, epsilon>3, train.epochs=2": "<nil>",
		"dp, epsilon<3, train.epochs=3": "--require epsilon<3 does not hold: the server has epsilon: infinite\n" +
			"--require train.epochs=3 does not hold: the server has train.epochs: 2",
		"train.epochs>2,dp,dp=off": "--require train.epochs>2 does not hold: the server has train.epochs: 2\n" +
			"--require dp=off does not hold: the server has dp: on",
		"train.epochs!=ten": `--require train.epochs!=ten: train.epochs is a number, "ten" is none`,
		"dp!=none":          `--require dp!=none: dp is on or off, "none" is neither`,
		"x": "--require x: unknown key; known are dp, epsilon, and all keys of the " +
			"configuration, such as train.epochs or options.NAME"} {
		list, err := ParseRequirements(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Meets(list, keys, "the server"); fmt.Sprint(err) != says {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}

// Facts are read as they were written; an epsilon without a bound is a text.
func TestFacts(t *testing.T) {
	for text, f := range map[string]Fact{"none": {"a", nil, ""}, "on": {"a", true, ""}, "off": {"a", false, ""},
		"infinite": {"a", math.Inf(1), ""},
		"0.3333":   {"a", 1. / 3, ""}, "x, y": {"a", []string{"x", "y"}, ""}, "z": {"a", "z", ""}} {
		if f.Text() != text {
			t.Errorf("%v: %s, want %s", f.Value, f.Text(), text)
		}
		b, err := json.Marshal(f)
		var back Fact
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if want := map[bool]any{true: "infinite", false: f.Value}[text == "infinite"]; err != nil ||
			back.Name != "a" || !reflect.DeepEqual(back.Value, want) {
			t.Errorf("%s: %+v, %v", b, back, err)
		}
	}
	if got := (Fact{Value: []string{}}).Text(); got != "none" {
		t.Error(got)
	}
	if err := json.Unmarshal([]byte(`[]`), &Fact{}); err == nil {
		t.Error("a list is a fact")
	}
}
