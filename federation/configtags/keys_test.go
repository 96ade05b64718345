package configtags

import (
	"reflect"
	"testing"
)

type inner struct {
	Depth int `config:"depth" in:"1..4|8.."`
}

func (inner) LongHelp() map[string]string {
	return map[string]string{"depth": "so many blocks", "name": "of nothing"}
}

type outer struct {
	Name  string `config:"name" help:"of it"`
	inner `config:",squash"`
	Own   inner `config:"own"`
	Other int
}

func TestKeys(t *testing.T) {
	var got [][2]string
	for _, k := range Keys(reflect.ValueOf(outer{inner: inner{Depth: 3}, Own: inner{Depth: 4}})) {
		got = append(got, [2]string{k.Name, k.Help})
		if k.Name == "depth" && k.Value.Interface() != 3 {
			t.Errorf("depth is %v", k.Value)
		}
	}
	want := [][2]string{{"name", "of it"}, {"depth", "so many blocks"}, {"own", ""}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
