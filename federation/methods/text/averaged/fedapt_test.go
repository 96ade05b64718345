package averaged_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/tensor"
)

// Domains are numbered by name when a run begins. Later domains get the next numbers, and no number changes.
func TestFedAPTDomains(t *testing.T) {
	infos := func(domains ...string) (out []method.ClientInfo) {
		for _, d := range domains {
			info := method.ClientInfo{Domain: d}
			if d != "?" { // a client that did not join yet
				info.Backbone = "toy"
			} else {
				info.Domain = ""
			}
			out = append(out, info)
		}
		return out
	}
	for _, c := range []struct {
		domains     int
		start, join []string
		want        []float32
		fail        string
	}{
		{0, []string{"b", "a", "b"}, nil, []float32{0, 1, 2}, ""},
		{2, []string{"b", "a", "b"}, nil, []float32{1, 0, 1}, ""},
		{2, []string{"", "", ""}, nil, []float32{0, 1, 0}, ""},
		{3, []string{"b", "?", "c"}, []string{"b", "a", "c"}, []float32{0, 2, 1}, ""},
		{2, []string{"b", "?", "?"}, []string{"b", "b", "a"}, []float32{0, 0, 1}, ""},
		{2, []string{"a", "b", "c"}, nil, nil, "belong to 3 domains but options.domains is 2; set it to 3"},
		{4, []string{"a", "b", "c"}, nil, nil, "set it to 3"},
		{2, []string{"a", "b", "?"}, []string{"a", "b", "c"}, nil, "set it to 3"},
	} {
		m, err := methods.Build("fedapt", nil, methodtest.Options{"domains": c.domains, "tokens": 1})
		if err != nil {
			t.Fatal(err)
		}
		g := &method.Global{Clients: len(c.start), Task: method.ClientSpec{Clients: len(c.start)}, Width: 1,
			Infos: infos(c.start...), Broadcast: tensor.Map{}}
		if err = m.Start(g); err == nil && c.join != nil {
			g.Infos = infos(c.join...)
			err = m.Join(g, nil)
		}
		switch {
		case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
			t.Errorf("%+v: %v", c, err)
		case c.fail == "" && (err != nil || !slices.Equal(g.Broadcast["apt/domains"].Data, c.want)):
			t.Errorf("%+v: %v, %v", c, fmt.Sprint(g.Broadcast["apt/domains"].Data), err)
		}
	}
	if _, err := methods.Build("fedapt", nil, methodtest.Options{"class_specific": true}); err == nil ||
		!strings.Contains(err.Error(), "set assign: scores") {
		t.Error(err)
	}
}
