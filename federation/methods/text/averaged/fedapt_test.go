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
		claimed     bool
	}{
		{0, []string{"b", "a", "b"}, nil, []float32{0, 1, 2}, "", false},
		{2, []string{"b", "a", "b"}, nil, []float32{1, 0, 1}, "", false},
		{2, []string{"", "", ""}, nil, []float32{0, 1, 0}, "", false},
		{3, []string{"b", "?", "c"}, []string{"b", "a", "c"}, []float32{0, 2, 1}, "", false},
		{2, []string{"b", "?", "?"}, []string{"b", "b", "a"}, []float32{0, 0, 1}, "", false},
		{2, []string{"a", "b", "c"}, nil, nil, "belong to 3 domains but options.domains is 2; set it to 3", false},
		{4, []string{"a", "b", "c"}, nil, nil, "set it to 3", false},
		{2, []string{"a", "b", "?"}, []string{"a", "b", "c"}, nil, "set it to 3", false},
		// Clients that may lie: domain "0" of one client is none of the two, and client 0 is of 0 mod 2. If a domain is
		// missing, nothing is wrong; later domains find no number.
		{2, []string{"0", "b", "b", "a", "a"}, nil, []float32{0, 1, 1, 0, 0}, "", true},
		{4, []string{"a", "b", "c"}, nil, []float32{0, 1, 2}, "", true},
		{2, []string{"a", "b", "?"}, []string{"a", "b", "c"}, []float32{0, 1, 0}, "", true},
	} {
		m := methodtest.Build(t, "fedapt", nil, methodtest.Options{"domains": c.domains, "tokens": 1})
		g := &method.Global{Clients: len(c.start), Task: method.ClientSpec{Clients: len(c.start)}, Width: 1,
			Infos: infos(c.start...), Broadcast: tensor.Map{}, Claimed: c.claimed}
		err := m.Start(g)
		if err == nil && c.join != nil {
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
