package uploads_test

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/wrappers/uploads"
	"promptfed/federation/methodtest"
	"promptfed/federation/privacy"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// The pencil's clients move from 0 to 0.75 and -0.5625: clipped at 0.6 the sum is 0.0375, over 2 clients. Their
// examples, one and two, do not count.
func TestDPByHand(t *testing.T) {
	const want = (0.6 - 0.5625) / 2
	for _, where := range []string{"server", "client"} {
		methodtest.HandExample{Method: "promptfl", With: []string{"dp"}, Options: methodtest.Options{"tokens": 1,
			"clip": 0.6, "noise": 0.0, "where": where}, LR: methodtest.HandLR,
			First: map[string]float64{"ctx": 0}, Want: map[string]float64{"r0/merged/ctx": want,
				"r1/c0/s0/grad/ctx": methodtest.Slope0(want)}}.Check(t)
	}
}

// private runs DP over PromptFL with the given options and rounds on toy clients.
func private(t *testing.T, e spec.Plan, o methodtest.Options) *engine.Result {
	t.Helper()
	m := methodtest.Build(t, "promptfl", []string{"dp"}, o)
	return enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
		Template: "a {}.", Clients: methodtest.ClientsOfOneBackbone(4, 5, 6, 3), Plan: e,
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}}},
		engine.Settings{Workers: 2})
}

// noiseOf returns the noise on the prompt of 40 tokens in one round that moves nothing: all that the server adds is
// noise.
func noiseOf(t *testing.T, plan spec.Plan, o methodtest.Options) (first, std float64) {
	t.Helper()
	// The clip is so small that only noise, of 1e6 clips, remains.
	o = methodtest.Merge(o, methodtest.Options{"tokens": 40, "clip": 1e-6})
	start := private(t, spec.Plan{Rounds: 1, Seed: plan.Seed},
		methodtest.Merge(o, methodtest.Options{"noise": 0.0})).Prompts["shared/ctx"]
	got := private(t, plan, o).Prompts["shared/ctx"]
	sum := 0.0
	for i, v := range got.Data {
		d := float64(v - start.Data[i])
		sum += d * d
	}
	return float64(got.Data[0] - start.Data[0]), math.Sqrt(sum / float64(got.Len()))
}

// The noise of the mean of 4 clients has the standard deviation z C/4, on clients z C/(4 √least). From 240 numbers
// the estimate is within 4 standard errors, 4/√480 of it. For half the clients it is z C/2. It depends on the seed,
// unless it is secure.
func TestDPNoise(t *testing.T) {
	for _, c := range []struct {
		plan spec.Plan
		o    methodtest.Options
		want float64
	}{
		{spec.Plan{Rounds: 1, Seed: 3}, methodtest.Options{"noise": 1e6}, 0.25},
		{spec.Plan{Rounds: 1, Seed: 3, Participation: 0.5}, methodtest.Options{"noise": 1e6}, 0.5},
		{spec.Plan{Rounds: 1, Seed: 3, Participation: 0.5, Poisson: true}, methodtest.Options{"noise": 1e6}, 0.5},
		{spec.Plan{Rounds: 1, Seed: 3}, methodtest.Options{"noise": 1e6, "where": "client", "least": 0.25}, 0.5},
		{spec.Plan{Rounds: 1, Seed: 3}, methodtest.Options{"noise": 1e6, "where": "client", "least": 0.5},
			0.25 * math.Sqrt2},
		{spec.Plan{Rounds: 1, Seed: 3}, methodtest.Options{"noise": 1e6, "secure": true}, 0.25},
	} {
		first, std := noiseOf(t, c.plan, c.o)
		if !(math.Abs(std/c.want-1) <= 4/math.Sqrt(480)) {
			t.Errorf("%+v %v: the noise's deviation is %v, want %v", c.plan, c.o, std, c.want)
		}
		again, _ := noiseOf(t, c.plan, c.o)
		if secure := c.o["secure"] == true; (again == first) == secure {
			t.Errorf("%v: two runs gave the noise %v and %v", c.o, first, again)
		}
	}
}

// The noise on a sum is N(0, z²C²), from the run's seed and from a secret key: of 200,000 numbers mean, variance and
// shares beyond 1 to 4 deviations on each side are within 4 standard errors, √(1/n), √(2/n) and √(p(1-p)/n).
func TestDPNoiseIsGaussian(t *testing.T) {
	const n, z, clip = 200_000, 1.5, 0.2
	path := filepath.Join(t.TempDir(), "noise.json")
	key := fmt.Sprintf(`{"run": "a", "key": %q, "released": {}}`, base64.StdEncoding.EncodeToString(make([]byte, 32)))
	filetest.Write(t, path, key)
	secret, err := noise.Open(path, "a", false)
	goldentest.NoError(t, err)
	for name, source := range map[string]method.Noise{"seed": nil, "secret": secret.ForRound(0, false)} {
		var got []method.Upload
		m := uploads.DP{Method: merging{ups: &got}, Clip: clip, Noise: z, Quantile: 0.5, Delta: 1e-5, Where: "server"}
		x := tensor.Map{"ctx": tensor.New(n)}
		g := &method.Global{Sampling: method.Sampling{Clients: 1, Size: 1}, Shared: x, Noise: source,
			Notes: map[string]float64{}}
		goldentest.NoError(t, m.Merge(g, []method.Upload{{Shared: x}}))
		within := func(what string, sum, want, variance float64) {
			if d := (sum/n - want) / math.Sqrt(variance/n); !(math.Abs(d) <= 4) {
				t.Errorf("%s: %s is %v, %.1f standard errors from %v", name, what, sum/n, d, want)
			}
		}
		var sum, squares float64
		beyond := map[int]float64{}
		for _, y := range got[0].Shared["ctx"].Data {
			v := float64(y) / (z * clip)
			sum, squares = sum+v, squares+v*v
			for k := 1; k <= 4 && math.Abs(v) > float64(k); k++ {
				beyond[int(math.Copysign(float64(k), v))]++
			}
		}
		within("the mean", sum, 0, 1)
		within("the variance", squares, 1, 2)
		for _, k := range []int{-4, -3, -2, -1, 1, 2, 3, 4} {
			p := math.Erfc(math.Abs(float64(k))/math.Sqrt2) / 2
			within(fmt.Sprint("the share beyond ", k), beyond[k], p, p*(1-p))
		}
	}
}

// The recorded epsilon equals that of Google's accountant for the same rounds.
func TestDPEpsilon(t *testing.T) {
	var cases []struct {
		Poisson               bool
		Noise, Delta, Epsilon float64
		M, N, Rounds          int
	}
	goldentest.ReadJSON(t, "../../../privacy/testdata/epsilon.json", &cases)
	for _, c := range cases {
		m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"noise": c.Noise, "delta": c.Delta})
		g := &method.Global{Round: c.Rounds - 1, Sampling: method.Sampling{Clients: c.N, Size: float64(c.M),
			Poisson: c.Poisson},
			Shared: tensor.Map{"ctx": tensor.New(4, 6)}, Notes: map[string]float64{},
			State: tensor.Map{"dp/released": tensor.New(c.Rounds - 1)}}
		goldentest.NoError(t, m.Merge(g, nil))
		// Epsilon against clients that know the sample is not smaller; a round of all clients has one number only.
		all := g.Notes["epsilon_nominal_unsampled"]
		if c.M < c.N && !(all >= g.Notes["epsilon_nominal"]) || c.M == c.N && all != 0 {
			t.Errorf("%+v: %v", c, g.Notes)
		}
		if got := g.Notes["epsilon_nominal"]; math.Abs(got-c.Epsilon) > 1e-6*c.Epsilon || g.Notes["delta"] != c.Delta {
			t.Errorf("%+v: %v", c, g.Notes)
		}
	}
	r := private(t, spec.Plan{Rounds: 3, Participation: 0.5, TestEvery: 3}, methodtest.Options{"noise": 5.0})
	const nominal = "epsilon_nominal" // noise from the seed protects nobody
	eps := []float64{r.Records[0].Notes[nominal], r.Records[1].Notes[nominal], r.Records[2].Notes[nominal]}
	if !(eps[0] > 0 && eps[1] > eps[0] && eps[2] > eps[1]) || r.Summary.Notes[nominal] != eps[2] {
		t.Errorf("epsilons %v, summary %v", eps, r.Summary.Notes)
	}
}

// A client with any upload and any claimed number of examples moves the server by C/n at most.
func TestDPBoundsAClient(t *testing.T) {
	for _, v := range []float32{-3e38, -1, 0, 0.5, 3e38} {
		m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"clip": 0.5, "noise": 0.0})
		g := &method.Global{Sampling: method.Sampling{Clients: 2, Size: 2}, Shared: tensor.Map{"ctx": tensor.New(1, 1)},
			Notes: map[string]float64{}}
		ups := []method.Upload{{N: 1, Shared: tensor.Map{"ctx": tensor.New(1, 1)}}, {Client: 1, N: 1 << 40,
			Shared: tensor.Map{"ctx": tensor.Of([]float32{v}, 1, 1)}}}
		goldentest.NoError(t, m.Merge(g, ups))
		if got := float64(g.Shared["ctx"].Data[0]); math.Abs(got) > 0.25+1e-9 || v > 0.4 && math.Abs(got-0.25) > 1e-6 {
			t.Errorf("%v moved the mean to %v", v, got)
		}
	}
}

func TestDPRefusesRounds(t *testing.T) {
	build := func(o methodtest.Options) method.Method {
		return methodtest.Build(t, "promptfl", []string{"dp"}, o)
	}
	up := func(client, n int) method.Upload {
		return method.Upload{Client: client, N: n, Shared: tensor.Map{"ctx": tensor.New(4, 6)}, Extra: tensor.Map{}}
	}
	state := func(given int, poisson bool) *method.Global {
		return &method.Global{Sampling: method.Sampling{Clients: given, Size: 10, Poisson: poisson},
			Shared: tensor.Map{"ctx": tensor.New(4, 6)}, Broadcast: tensor.Map{}, Notes: map[string]float64{}}
	}
	says := func(err error, words string) {
		t.Helper()
		goldentest.WantError(t, err, words)
	}
	says(build(methodtest.Options{"delta": 0.01}).Start(state(100, false)), "must be below 1/100")
	client := build(methodtest.Options{"where": "client"})
	says(client.Start(state(100, true)), "a fixed number of clients")
	says(client.Merge(state(100, false), []method.Upload{up(0, 1), up(1, 1)}),
		"2 clients uploaded; enough noise needs the uploads of 6 of 10")
	says(client.Merge(state(100, false), []method.Upload{up(method.AggregatedClient, 5)}), "5 clients uploaded")
	says(build(methodtest.Options{"where": "client", "least": 0.55}).Merge(state(100, false), nil),
		"0 clients uploaded; enough noise needs the uploads of 6 of 10")
	for _, n := range []*tensor.Tensor{nil, tensor.OfInts([]int64{10}, 1), tensor.Of([]float32{10, 10}, 2),
		tensor.Of([]float32{9}, 1)} {
		l := &method.Local{Broadcast: tensor.Map{"dp/clients": n}, Sampling: method.Sampling{Size: 10}}
		u := up(0, 3)
		says(client.Finish(l, &u), "(dp/clients) is not the 10 of this client's configuration")
		l.Alone = true // no server gets it
		goldentest.NoError(t, client.Finish(l, &u))
	}
	for o, words := range map[string]string{"client": "set where: server and a first clip", "server": "a first clip"} {
		clip := 0.0
		if o == "client" {
			clip = 1
		}
		_, err := methods.Build("promptfl", []string{"dp"}, methodtest.Options{"adapt": 0.1, "where": o, "clip": clip,
			"noise": 0.0})
		says(err, words)
	}
	if err := client.Merge(state(100, false), []method.Upload{up(method.AggregatedClient, 6)}); err != nil {
		t.Error(err)
	}
}

// Where clients add the noise, one upload counts with a norm of at most clip (1 + noise/sqrt(share) (sqrt(d) + 6)):
// with a clip of 2, noise 1, a share of 5 and 24 numbers that is 2 (1 + (4.899 + 6)/2.2361) = 11.748.
func TestLyingUploadUnderClientNoise(t *testing.T) {
	m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"where": "client", "clip": 2.0,
		"noise": 1.0, "least": 0.5})
	g := &method.Global{Sampling: method.Sampling{Clients: 100, Size: 10}, Shared: tensor.Map{"ctx": tensor.New(4, 6)},
		Broadcast: tensor.Map{}, Notes: map[string]float64{}}
	var ups []method.Upload
	for k := range 5 {
		u := method.Upload{Client: k, N: 1, Shared: tensor.Map{"ctx": tensor.New(4, 6)}, Extra: tensor.Map{}}
		if k == 0 {
			for i := range u.Shared["ctx"].Data {
				u.Shared["ctx"].Data[i] = 9e5
			}
		}
		ups = append(ups, u)
	}
	goldentest.NoError(t, m.Merge(g, ups))
	if got := g.Shared["ctx"].Norm(); math.Abs(got-1.1748) > 1e-3 { // over 10 clients
		t.Errorf("one upload moved the prompt by %v", got)
	}
}

// Of four clients three move by 0.5 and one by 2, with a clip of 1 and a quantile of a half. Three quarters are not
// clipped, so the clip falls to e^(-0.2/4). With noise 4/20 on the count and 0.3 in all, the updates have 1/√(1/0.3²
// - 1/0.4²) = 0.45356, over 4 clients; the estimate from 6000 numbers is within 4 standard errors. Epsilon does not
// change.
func TestDPAdapts(t *testing.T) {
	round := func(o methodtest.Options, moves ...float32) *method.Global {
		t.Helper()
		m := methodtest.Build(t, "promptfl", []string{"dp"},
			methodtest.Merge(o, methodtest.Options{"adapt": 0.2, "clip": 1.0}))
		g := &method.Global{Sampling: method.Sampling{Clients: 4, Size: 4}, Shared: tensor.Map{"ctx": tensor.New(1000,
			6)}, Broadcast: tensor.Map{}, State: tensor.Map{}, Notes: map[string]float64{}}
		goldentest.NoError(t, m.Start(g))
		var ups []method.Upload
		for i, v := range moves {
			u := method.Upload{Client: i, N: 1, Shared: tensor.Map{"ctx": tensor.New(1000, 6)}}
			u.Shared["ctx"].Data[0] = v
			ups = append(ups, u)
		}
		goldentest.NoError(t, m.Merge(g, ups))
		return g
	}
	g := round(methodtest.Options{"noise": 0.0}, 0.5, -0.5, 0.5, 2)
	if got := float64(g.State["dp/clip"].Data[0]); math.Abs(got-math.Exp(-0.05)) > 1e-6 || g.Notes["clip"] != 1 {
		t.Errorf("clip %v, want %v; notes %v", got, math.Exp(-0.05), g.Notes)
	}
	if got := float64(g.Shared["ctx"].Data[0]); math.Abs(got-1.5/4) > 1e-6 {
		t.Errorf("mean %v, want (0.5-0.5+0.5+1)/4", got)
	}
	g = round(methodtest.Options{"noise": 0.3}, 0, 0, 0, 0)
	if std, want := g.Shared["ctx"].Norm()/math.Sqrt(6000),
		0.4535573676110727/4; !(math.Abs(std/want-1) <= 4/math.Sqrt(12000)) {
		t.Errorf("noise of %v, want %v", std, want)
	}
	plain := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"noise": 0.3})
	same := &method.Global{Sampling: g.Sampling, Shared: tensor.Map{"ctx": tensor.New(1, 6)},
		Notes: map[string]float64{}}
	if err := plain.Merge(same, nil); err != nil || same.Notes["epsilon_nominal"] != g.Notes["epsilon_nominal"] {
		t.Errorf("epsilon %v and %v, %v", same.Notes, g.Notes, err)
	}
	m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"adapt": 0.2, "noise": 0.4})
	goldentest.WantError(t, m.Start(g), "with noise 0.4 a round needs more than 4 clients, it has 4")
}

// The server's record has the epsilon of the actual noise of each sum; with where: client that is the noise of the
// clients that uploaded. The rounds are those of tools/golden/privacy_exact.py. Epsilon exceeds that script's integral
// over the whole run by less than an eighth. With the noise configured by least, as if six had uploaded each time, it
// would exceed it by more than a quarter.
func TestDPDropOuts(t *testing.T) {
	var cases []struct{ Delta, Epsilon float64 }
	goldentest.ReadJSON(t, "../../../privacy/testdata/exact.json", &cases)
	m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"noise": 4.0, "where": "client",
		"delta": cases[0].Delta})
	g := &method.Global{Sampling: method.Sampling{Clients: 10, Size: 10}, Shared: tensor.Map{"ctx": tensor.New(1, 1)},
		State: tensor.Map{}, Noise: noNoise}
	up := method.Upload{Client: method.AggregatedClient, Shared: tensor.Map{"ctx": tensor.New(1, 1)}}
	for _, up.N = range []int{10, 8, 6, 9, 7, 10, 6, 6} {
		g.Notes = map[string]float64{}
		goldentest.NoError(t, m.Merge(g, []method.Upload{up}))
		g.Round++
	}
	d, _ := methods.DPLayer(m)
	most, _ := d.Promised(g.Sampling, g.Round)
	if e := g.Notes["epsilon"]; !(e > cases[0].Epsilon && e < 1.125*cases[0].Epsilon && most > 1.25*cases[0].Epsilon) {
		t.Errorf("epsilon %v, the integral says %v; promised was %v", e, cases[0].Epsilon, most)
	}
	// A round with a second sum after a crash, of other uploads: the second sum costs as much as one upload.
	before := g.Notes["epsilon"]
	g.Noise = func(string, []byte) (*rand.Rand, int, error) { return nil, 2, nil }
	goldentest.NoError(t, m.Merge(g, []method.Upload{up}))
	if e := g.Notes["epsilon"]; !(e > before+1) {
		t.Errorf("two releases in a round raise epsilon from %v to %v", before, e)
	}
	if got := g.State["dp/released"].Data; !slices.Equal(got, []float32{10, 8, 6, 9, 7, 10, 6, 6, -6, -1}) {
		t.Errorf("the releases are %v", got)
	}
}

// noNoise is a secret source from which nothing is drawn.
func noNoise(string, []byte) (*rand.Rand, int, error) { return nil, 1, nil }

// merging keeps what the layer inside a wrapper gets.
type merging struct {
	method.Method
	ups *[]method.Upload
}

func (m merging) Merge(_ *method.Global, ups []method.Upload) error {
	*m.ups = ups
	return nil
}

// The noise on each number is z C of the recorded one, over the number of clients, and that on the count of updates
// that were not clipped is a twentieth of that number. The layer inside gets one upload of as many clients, at least
// one. Of 4 updates of 0.5, 0.5, 1 and 2 three are not longer than 1.
func TestDPAddsTheRecordedNoise(t *testing.T) {
	var got []method.Upload
	m := uploads.DP{Method: merging{ups: &got}, Clip: 9, Noise: 0.2, Adapt: 0.2, Quantile: 0.5, Delta: 1e-5,
		Where: "server"}
	drawn := map[string][]float32{}
	g := &method.Global{Sampling: method.Sampling{Clients: 8, Size: 4}, Shared: tensor.Map{"ctx": tensor.New(2)},
		State: tensor.Map{"dp/clip": tensor.Of([]float32{1}, 1)}, Notes: map[string]float64{},
		Draws: method.NewDraws(func(name string, t *tensor.Tensor) { drawn[name] = t.Data })}
	var ups []method.Upload
	for _, v := range []float32{0.5, 0.5, 1, 2} {
		ups = append(ups, method.Upload{Shared: tensor.Map{"ctx": tensor.Of([]float32{v, 0}, 2)}})
	}
	goldentest.NoError(t, m.Merge(g, ups))
	std := 1 / math.Sqrt(1/(0.2*0.2)-1/(0.4*0.4)) // 1/z² less 1/(2·4/20)²
	for i, sum := range []float64{0.5 + 0.5 + 1 + 1, 0} {
		want := (sum + std*float64(drawn["dp/ctx"][i])) / 4
		if v := got[0].Shared["ctx"].Data[i]; !(math.Abs(float64(v)-want) <= 1e-6) || got[0].N != 4 {
			t.Errorf("number %d is %v of %d clients, want %v", i, v, got[0].N, want)
		}
	}
	share := (3*0.5-0.5+0.2*float64(drawn["dp/clip"][0]))/4 + 0.5
	if v, want := g.State["dp/clip"].Data[0], math.Exp(-0.2*(share-0.5)); !(math.Abs(float64(v)-want) <= 1e-6) {
		t.Errorf("the clip is %v, want %v", v, want)
	}
	// Without adapt a clip of another run has no effect; with adapt and none, the configured one.
	for _, c := range []struct {
		adapt float64
		state *tensor.Tensor
	}{{0, tensor.Of([]float32{1}, 1)}, {0.2, nil}, {0.2, tensor.New(2)}} {
		m.Adapt, g.State, g.Sampling.Size = c.adapt, tensor.Map{"dp/clip": c.state}, 0.5
		m.Noise = 0
		if err := m.Merge(g, ups[3:]); err != nil || got[0].Shared["ctx"].Data[0] != 2/0.5 || got[0].N != 1 {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// What the wrapper asks of a run: nothing when it is off, every upload on the server, and a uniform mean of clients
// that add their noise.
func TestDPProperties(t *testing.T) {
	off := uploads.DP{Method: merging{}, Where: "server", Secure: true}
	server, client := off, off
	server.Clip = 1
	client.Clip, client.Where, client.Secure = 1, "client", false
	for _, c := range []struct {
		uploads.DP
		mean              method.Weights
		needs, on, secure bool
	}{{off, method.InnerWeights, false, false, false}, {server, "", true, true, true},
		{client, method.Uniform, false, true, false}} {
		p := c.Properties()
		if p.Mean != c.mean || (p.Needs != "") != c.needs || p.HidesClients != c.on || p.Noise != c.on ||
			p.SecretNoise != c.secure || !p.Outermost {
			t.Errorf("clip %v, %s: %+v", c.Clip, c.Where, p)
		}
	}
	m := methodtest.Build(t, "promptfl", []string{"dp"}, methodtest.Options{"clip": 0.0, "noise": 0.0})
	up := method.Upload{N: 5}
	if err := m.Finish(&method.Local{}, &up); err != nil || up.N != 5 {
		t.Errorf("an upload of %d examples without a clip, %v", up.N, err)
	}
	var got []method.Upload
	off.Method = merging{ups: &got}
	if err := off.Merge(nil, []method.Upload{{Client: 3, N: 5}}); err != nil || len(got) != 1 || got[0].Client != 3 {
		t.Errorf("without a clip the layer inside gets %v, %v", got, err)
	}
}

// Of 10 clients with noise 2 in all, if half of them upload, a server that sees sums of 3 sees noise of 2 √(3/5); of
// sums of 8, no less than the 2 that is promised. It knows the sample, and sees everything where it adds the noise.
func TestDPAgainstTheServer(t *testing.T) {
	m := uploads.DP{Clip: 1, Noise: 2, Delta: 1e-5, Where: "client", Least: 0.5}
	drawn := method.Sampling{Clients: 20, Size: 10}
	for together, noise := range map[int]float64{3: 2 * math.Sqrt(3./5), 8: 2} {
		want := privacy.Accountant{{Noise: noise, Rate: 1}: 7}.Epsilon(1e-5)
		if got := m.Against(drawn, 7, together); got != want {
			t.Errorf("sums of %d: epsilon %v, want %v", together, got, want)
		}
	}
	sampled, unsampled := m.Promised(drawn, 7)
	if want := (privacy.Accountant{{Noise: 2, Rate: 0.5}: 7}).Epsilon(1e-5); sampled != want ||
		unsampled != m.Against(drawn, 7, 8) {
		t.Errorf("promised %v and %v, want %v", sampled, unsampled, want)
	}
	m.Where = "server"
	if e := m.Against(drawn, 7, 8); !math.IsInf(e, 1) {
		t.Errorf("epsilon %v against a server that sees uploads", e)
	}
}
