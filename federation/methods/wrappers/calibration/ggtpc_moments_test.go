package calibration

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

func calibration(change func(*GGTPC)) GGTPC {
	m := ggtpcDef.Default.(GGTPC)
	m.MinCount = 1
	change(&m)
	return m
}

// statisticsOf returns the statistics of one client per list of rows of width 2, all of class 0 of 2.
func statisticsOf(t *testing.T, m GGTPC, clients ...[]float32) []method.Upload {
	t.Helper()
	var ups []method.Upload
	for k, rows := range clients {
		n := len(rows) / 2
		a, err := m.measure(tensor.Of(rows, n, 2), make([]int64, n), 2)
		goldentest.NoError(t, err)
		ups = append(ups, method.Upload{Client: k, N: n, Extra: a})
	}
	return ups
}

// global returns a server with these clients, of one backbone if they name none.
func global(peers ...method.ClientInfo) *method.Global {
	for i := range peers {
		peers[i].Backbone = cmp.Or(peers[i].Backbone, "a")
	}
	return &method.Global{Clients: len(peers), Infos: peers, Broadcast: tensor.Map{}, PerClient: map[int]tensor.Map{},
		State: tensor.Map{}}
}

// base is FedAvg without parameters.
type base struct{ method.FedAvg }

func (base) Params(method.ClientSpec) []method.Param { return nil }

func (base) Logits(*method.Scope) graph.Node { return graph.Node{} }

func same(t *testing.T, what string, got []float32, want ...float64) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && math.Abs(float64(got[i])-want[i]) < 1e-6
	}
	if !ok {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// By hand: client 0 has (0,0), (2,0), mean (1,0), covariance diag(1,0); client 1 has (4,3), (4,-3), mean (4,0),
// covariance diag(0,9). Together x is 0, 2, 4, 4 with mean 2.5 and variance (6.25+0.25+2.25+2.25)/4 = 2.75, y has
// (9+9)/4 = 4.5. Class 1 has no examples.
func TestLawOfTotalCovariance(t *testing.T) {
	for _, stats := range []string{"packed", "lowrank"} {
		m := calibration(func(m *GGTPC) { m.Stats = stats })
		ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3})
		same(t, "n", ups[1].Extra["n"].Data, 2, 0)
		same(t, "mean", ups[1].Extra["mean"].Data, 4, 0, 0, 0)
		if stats == "packed" {
			same(t, "cov", ups[0].Extra["cov"].Data, 1, 0, 0, 0, 0, 0)
			same(t, "cov", ups[1].Extra["cov"].Data, 0, 0, 9, 0, 0, 0)
		} else {
			same(t, "factors", ups[1].Extra["factors"].Data, 0, 3)
		}
		g := global(method.ClientInfo{}, method.ClientInfo{})
		goldentest.NoError(t, m.aggregate(g, ups))
		same(t, "sizes", g.Broadcast["sizes"].Data, 4.5, 2.75, 0, 0)
		same(t, "axes", g.Broadcast["axes"].Data, 0, 1, 1, 0, 0, 0, 0, 0)
		// ε = (2,1) moves a row of class 0 by (√2.75, 2√4.5), and a row of class 1 not at all.
		c := &calibrated{method: m, axes: g.Broadcast["axes"], sizes: g.Broadcast["sizes"]}
		if d := c.noise(0, []float32{2, 1}); math.Hypot(d[0]-math.Sqrt(2.75), d[1]-2*math.Sqrt(4.5)) > 1e-6 {
			t.Errorf("noise %v", d)
		}
		if d := c.noise(1, []float32{2, 1}); d[0] != 0 || d[1] != 0 {
			t.Errorf("noise of a class that nobody has: %v", d)
		}
	}
}

// The smallest number of clients with 80 % of a class, by hand.
func TestSelectedClients(t *testing.T) {
	for _, c := range []struct {
		counts []int
		share  float64
		want   []int
	}{
		{[]int{20, 50, 30}, 0.8, []int{1, 2}},
		{[]int{20, 50, 29}, 0.8, []int{1, 2, 0}}, // 79 of 99 is 79.8 %
		{[]int{10, 10, 10, 10, 10}, 0.8, []int{0, 1, 2, 3}},
		{[]int{0, 3, 0, 3, 1}, 1, []int{1, 3, 4}},
		{[]int{4, 5}, 0, []int{1}},
		{[]int{0, 0}, 0.8, nil},
	} {
		var all []moments
		for k, n := range c.counts {
			all = append(all, moments{client: k, n: []int{n}})
		}
		got, sum := calibration(func(m *GGTPC) { m.Share = c.share }).selected(all, 0)
		var ids []int
		for _, a := range got {
			ids = append(ids, a.client)
			sum -= a.n[0]
		}
		if !slices.Equal(ids, c.want) || sum != 0 {
			t.Errorf("%v: clients %v, want %v", c.counts, ids, c.want)
		}
	}
}

func normal(seed uint64, n, d int) *tensor.Tensor {
	return method.Draw(seed, 0, "rows", []int{n, d}, 1)
}

// A covariance in packed form, and as all its factors, equals that of gonum's triangle.
func TestPackedAndFactorsHoldTheCovariance(t *testing.T) {
	const n, d = 9, 4
	x := normal(3, n, d)
	var want mat.SymDense
	rows := centred(x, make([]int64, n), 0, 1, make([]float32, d))
	want.SymOuterK(1./n, rows.T())
	// A packed covariance has 4 * 5 / 2 numbers; factors have at most 4 rows, which a minus says.
	for stats, shape := range map[string][]int{"packed": {1, 10}, "lowrank": {-4, 4}} {
		m := calibration(func(m *GGTPC) { m.Stats = stats })
		e, err := m.measure(x, make([]int64, n), 1)
		goldentest.NoError(t, err)
		if declared := m.answer(method.ClientSpec{Classes: 1, Dim: d}); len(declared) != len(e) ||
			e[declared[2].Name] == nil || !slices.Equal(declared[2].Shape, shape) {
			t.Errorf("%s: %v and %v", stats, declared, e.Names())
		}
		a, err := m.read(method.Upload{Extra: e})
		goldentest.NoError(t, err)
		got := mat.NewSymDense(d, nil)
		if stats == "packed" {
			a.addCov(got, 0, 1)
		} else {
			f := a.addFactors(nil, 0, 1)
			got.SymOuterK(1, mat.NewDense(len(f)/d, d, f).T())
		}
		if !mat.EqualApprox(got, &want, 1e-6) {
			t.Errorf("%s: %v, want %v", stats, mat.Formatted(got), mat.Formatted(&want))
		}
	}
}

// Classes of 1 and 2 rows are withheld at the default of 3, a class of 3 is not.
func TestSmallClassesAreWithheld(t *testing.T) {
	for _, stats := range []string{"packed", "lowrank"} {
		m := ggtpcDef.Default.(GGTPC)
		m.Stats = stats
		a, err := m.measure(normal(1, 6, 3), []int64{0, 1, 1, 2, 2, 2}, 4)
		goldentest.NoError(t, err)
		same(t, "n", a["n"].Data, 0, 0, 3, 0)
		for name, x := range a {
			if x.Shape[0] == 4 && name != "n" && (x.Row(0).MaxAbs() != 0 || x.Row(1).MaxAbs() != 0 ||
				x.Row(2).MaxAbs() == 0) {
				t.Errorf("%s: %v", name, x.Data)
			}
		}
		if f := a["factors"]; f != nil && f.Shape[0] != 2 {
			t.Errorf("%v of a class of 3 rows", f)
		}
	}
}

// The size of one client's answer about 100 classes of 20 images at ViT-B/16's width, against full covariances.
func TestBytesOfTheStatistic(t *testing.T) {
	const classes, d, each = 100, 512, 20
	label := make([]int64, classes*each)
	for i := range label {
		label[i] = int64(i % classes)
	}
	full := classes * d * d * 4
	x := normal(1, len(label), d)
	// (D+1)/2D, and 16/512, without the means
	for stats, most := range map[string]float64{"packed": 0.505, "lowrank": 0.034} {
		m := calibration(func(m *GGTPC) { m.Stats, m.Rank = stats, 16 })
		a, err := m.measure(x, label, classes)
		goldentest.NoError(t, err)
		size := message.EncodedSize(a)
		t.Logf("%s: %.1f MB, full covariances %.1f MB", stats, float64(size)/1e6, float64(full)/1e6)
		if float64(size) > most*float64(full) {
			t.Errorf("%s: %d bytes are more than %v of %d", stats, size, most, full)
		}
	}
}

type plainRows struct {
	method.Data
	class []int64
}

func (p plainRows) Len() int { return len(p.class) }

func (p plainRows) Labels() []int64 { return p.class }

func (p plainRows) Order(*rand.Rand) []int { return tensor.Indices(len(p.class)) }

// Classes of 1 and 3 rows have w = 3 and 1. As written in the paper P is 3/4 and 1/4, the latter for three rows
// together. By sample every row has its w, so both classes have 3 of 6. A prototype has 3.
func TestSampling(t *testing.T) {
	data := plainRows{class: []int64{0, 1, 1, 1}}
	proto := tensor.Map{ggtpcPlaces: tensor.New(1, 2), ggtpcLabels: tensor.OfInts([]int64{5}, 1)}
	for _, c := range []struct {
		sampling string
		prior    tensor.Map
		want     []float64 // weight of each row
	}{
		{"class", tensor.Map{}, []float64{3, 1. / 3, 1. / 3, 1. / 3}},
		{"sample", tensor.Map{}, []float64{3, 1, 1, 1}},
		{"class", proto, []float64{3, 1. / 3, 1. / 3, 1. / 3, 3}},
		{"sample", proto, []float64{3, 1, 1, 1, 3}},
	} {
		d := calibration(func(m *GGTPC) { m.Sampling = c.sampling }).calibrate(data, c.prior)
		sum, drawn := 0.0, make([]float64, len(c.want))
		for i, w := range c.want {
			sum += w
			if math.Abs(d.upTo[i]-sum) > 1e-12 {
				t.Errorf("%s: sums %v of %v", c.sampling, d.upTo, c.want)
			}
		}
		r := method.Rand(1)
		const epochs = 5000
		for range epochs {
			order := d.Order(r)
			if len(order) != 4 {
				t.Fatalf("%d rows", len(order))
			}
			for _, row := range order {
				drawn[row]++
			}
		}
		for i, w := range c.want { // five standard deviations of a binomial count
			p, n := w/sum, 4.*epochs
			if math.Abs(drawn[i]-n*p) > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%s: row %d drawn %v of %v times, want a share of %v", c.sampling, i, drawn[i], n, p)
			}
		}
	}
	none := calibration(func(m *GGTPC) { m.Sampling = "none" })
	if got := none.calibrate(data, tensor.Map{}).Order(method.Rand(1)); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("base method's order %v", got)
	}
	seen := map[int]bool{}
	for i := range 20 {
		for _, row := range none.calibrate(data, proto).Order(method.Rand(uint64(i))) {
			seen[row] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("rows %v of 4 and a prototype", seen)
	}
}

// Clients 0 and 2 share a backbone, 1 has another; 0 and 3 share domain and backbone. Means are (1,0), (4,0), (2,1),
// (3,0) of 2, 2, 1 and 4 rows.
func TestBackbonesAndDomains(t *testing.T) {
	m := calibration(func(m *GGTPC) { m.Prototypes = true })
	peers := []method.ClientInfo{{Backbone: "a", Domain: "east"}, {Backbone: "b", Domain: "east"}, {Backbone: "a"},
		{Backbone: "a", Domain: "east"}}
	ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3}, []float32{2, 1}, []float32{3, 1, 3, -1, 3,
		1, 3, -1})
	g := global(peers...)
	goldentest.NoError(t, m.aggregate(g, ups))
	if len(g.Broadcast) != 0 {
		t.Errorf("all get %v", g.Broadcast.Names())
	}
	same(t, "sizes of b", g.PerClient[1]["sizes"].Data, 9, 0)
	if g.PerClient[0]["axes"] != g.PerClient[2]["axes"] || g.PerClient[0]["axes"] == g.PerClient[1]["axes"] {
		t.Error("axes of a backbone are one tensor")
	}
	same(t, "places of 0", g.PerClient[0][ggtpcPlaces].Data, 2, 1)     // client 2, a domain of its own
	same(t, "places of 2", g.PerClient[2][ggtpcPlaces].Data, 14./6, 0) // east: (2·1 + 4·3)/6
	same(t, "places of 1", g.PerClient[1][ggtpcPlaces].Data)           // no other client has backbone b
	if got := g.PerClient[2][ggtpcLabels].Ints; !slices.Equal(got, []int64{0}) {
		t.Errorf("labels %v", got)
	}
	over := m
	over.Method = base{}
	part := []method.Upload{{Client: 2, N: 1}}
	if err := over.Merge(g, part); err != nil || len(g.PerClient[2]) != 0 || len(g.PerClient[0]) != 4 {
		t.Errorf("after client 2 trained: %v, %v", g.PerClient, err)
	}
}

// With one backbone the axes are sent to all clients, and stay until all have trained with them in one round. Training
// on synthetic data, which comes before, needs none. Where nobody answers, empty ones are sent.
func TestAxesTravelOnce(t *testing.T) {
	m := calibration(func(*GGTPC) {})
	m.Method = base{}
	goldentest.NoError(t, m.Begin(&method.Local{Pretrains: true}))
	g := global(method.ClientInfo{}, method.ClientInfo{})
	ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3})
	goldentest.NoError(t, m.aggregate(g, ups))
	for _, c := range []struct {
		ups  []method.Upload
		left int
	}{{ups[:1], 2}, {ups, 0}} {
		if err := m.Merge(g, c.ups); err != nil || len(g.Broadcast) != c.left {
			t.Errorf("%d uploads leave %v, %v", len(c.ups), g.Broadcast.Names(), err)
		}
	}
	unanswered := global(method.ClientInfo{Dim: 2})
	unanswered.Classes = 2
	if err := m.aggregate(unanswered, nil); err != nil || len(unanswered.Broadcast) != 2 {
		t.Errorf("without answers %v are sent, %v", unanswered.Broadcast.Names(), err)
	}
}

func TestForeignAnswersAreRefused(t *testing.T) {
	for _, stats := range []string{"packed", "lowrank"} {
		m := calibration(func(m *GGTPC) { m.Stats = stats })
		for name, bad := range map[string]*tensor.Tensor{
			"n": tensor.Of([]float32{0.5, 0}, 2, 1), "mean": tensor.New(4), "cov": tensor.New(2, 4),
			"factors": tensor.New(7, 2)} {
			ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3})
			own := ups[1].Extra[name]
			if own == nil {
				continue
			}
			for _, bad := range []*tensor.Tensor{bad, nil, tensor.OfInts(make([]int64, own.Len()), own.Shape...)} {
				ups[1].Extra[name] = bad
				err := m.aggregate(global(method.ClientInfo{}, method.ClientInfo{}), ups)
				goldentest.WantErrorOf(t, name, err, "client 1 answered "+name)
			}
		}
		ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3})
		wide, err := m.measure(tensor.New(1, 3), []int64{0}, 2) // width 3 where client 0 has 2
		goldentest.NoError(t, err)
		ups[1].Extra = wide
		err = m.aggregate(global(method.ClientInfo{}, method.ClientInfo{}), ups)
		goldentest.WantError(t, err, "client 1 answered mean", "client 0")
	}
}
