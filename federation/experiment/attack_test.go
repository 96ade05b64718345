package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/attack"
	"promptfed/federation/data"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// labelsOf returns the labels of a client's training and test data, and the sum of each row of its features.
func labelsOf(t *testing.T, d method.Data) (labels []int64, sums []float64) {
	t.Helper()
	m, err := d.Batch(tensor.Indices(d.Len()), method.Rand(1))
	if err != nil {
		t.Fatal(err)
	}
	rows := m[method.ImageInput]
	for i := range d.Len() {
		sum := 0.0
		for _, v := range rows.Row(i).Data {
			sum += float64(v)
		}
		sums = append(sums, sum)
	}
	return slices.Clone(d.Labels()), sums
}

func differ[T comparable](a, b []T) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// Each of three clients has 8 training examples; at a rate of 0.4 three of them have wrong labels. Test labels and
// images stay, clients.json counts the wrong labels beside the true numbers of each class, and the identity differs.
func TestLabelNoise(t *testing.T) {
	c := smallConfig("promptfl")
	clean := open(t, c)
	c.Data.LabelNoise = data.LabelNoise{Kind: data.Symmetric, Rate: 0.4, Clients: 1, Among: "all"}
	noisy := open(t, c)
	for i, now := range noisy.Experiment.Clients {
		was := clean.Experiment.Clients[i]
		a, rows := labelsOf(t, was.Train)
		b, same := labelsOf(t, now.Train)
		if differ(a, b) != 3 || differ(rows, same) != 0 || differ(was.Test.Labels(), now.Test.Labels()) != 0 {
			t.Errorf("client %d has the labels %v, without noise %v", i, b, a)
		}
		if info := noisy.Task.Clients().Clients[i]; info.Noisy != 3 ||
			!slices.Equal(info.Train, clean.Task.Clients().Clients[i].Train) {
			t.Errorf("clients.json: %+v", info)
		}
	}
	if clean.Experiment.Fingerprint() == noisy.Experiment.Fingerprint() {
		t.Error("the fingerprint does not tell of noise")
	}
	c.Data.LabelNoise.Rate = 1
	refuses(t, c, "data.label_noise.rate: 1")
}

// A client with data of its own keeps its labels, and a note says so. Attacks are refused with remote clients.
func TestElsewhere(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.LabelNoise.Kind = data.PairFlip
	b, err := opened(OpenClient(t.Context(), c, ClientPlace{Client: 1, Of: 3}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, y := range b.Experiment.Clients[0].Train.Labels() {
		if e := b.Task.Data.Set.Train[b.Task.Data.trainedOn(0)[i]]; y != int64(e.Label) {
			t.Fatalf("example %d has the label %d, and %d in its folder", i, y, e.Label)
		}
	}
	said := func(note string) bool { return strings.HasPrefix(note, "data.label_noise") }
	if !slices.ContainsFunc(b.Task.Info.Notes, said) {
		t.Errorf("notes %q", b.Task.Info.Notes)
	}
	c.Attack.Kind = attack.SignFlip
	for _, open := range []func() error{
		func() error { _, err := OpenServer(c, false); return err },
		func() error {
			_, err := OpenClient(t.Context(), c, ClientPlace{Of: 3, Partition: true}, nil)
			return err
		},
	} {
		if err := open(); err == nil || !strings.HasPrefix(err.Error(), "attack.kind:") {
			t.Errorf("%v", err)
		}
	}
	c.SimulatedTime.Speeds, c.SimulatedTime.File = "file", "/dev/zero" // named by the server
	if invited, err := c.CheckInvitation(); err != nil || invited.Attack.Enabled() || invited.SimulatedTime.Enabled() {
		t.Errorf("%v, %+v", err, invited)
	}
	dir := t.TempDir()
	c.Backbones = []string{"nowhere", dir} // a folder without a bundle
	_, _, err = c.OwnBackbones()
	goldentest.WantError(t, err, dir+" is not a bundle")
}

// Client 1 of three attacks. Without an attacker nothing changes, bit for bit. A label flip trains on C-1-y and a sign
// flip on the true labels; both change the result, and the records name the attacker, also with encoded messages.
func TestAttack(t *testing.T) {
	c := smallConfig("promptfl")
	plain := open(t, c)
	without := finish(t, plain)
	for _, kind := range []string{attack.LabelFlip, attack.SignFlip, attack.Gaussian} {
		c := c
		c.Attack = attack.Config{Kind: kind, Share: 0.1, Strength: 3} // 0.3 of a client, rounded
		none := open(t, c)
		if r := finish(t, none); !same(without.Prompts, r.Prompts) || r.Summary.Attack != nil {
			t.Errorf("%s by nobody changes the run: %+v", kind, r.Summary.Attack)
		}
		c.Attack.Clients = []int{1}
		b := open(t, c)
		for i, client := range b.Experiment.Clients {
			for k, y := range client.Train.Labels() {
				want := plain.Experiment.Clients[i].Train.Labels()[k]
				if i == 1 && kind == attack.LabelFlip {
					want = 3 - want
				}
				if y != want {
					t.Errorf("%s: client %d trains on label %d, not %d", kind, i, y, want)
				}
			}
		}
		if list := b.Task.Clients().Clients; list[0].Attacker || !list[1].Attacker {
			t.Errorf("clients.json: %+v", list)
		}
		r := finish(t, b)
		encoded := b.Settings()
		encoded.Encode = true
		again := enginetest.Run(t, b.Experiment, encoded)
		if same(without.Prompts, r.Prompts) || !same(again.Prompts, r.Prompts) {
			t.Errorf("%s changes nothing, or something else in messages", kind)
		}
		for _, rec := range r.Records {
			a, per := rec.Attack, rec.Evaluations.Global.PerClient
			if a == nil || !slices.Equal(a.Clients, []int{1}) || math.Abs(*a.Global-(per[0]+per[2])/2) > 1e-12 {
				t.Errorf("%s: the record says %+v of %v", kind, a, per)
			}
		}
		if a := r.Summary.Attack; a == nil || !slices.Equal(a.Clients, []int{1}) || a.SuccessGlobal != nil {
			t.Errorf("%s: the summary says %+v", kind, a)
		}
	}
}

// same reports whether the shared parameters are equal, bit for bit.
func same(a, b tensor.Map) bool {
	return slices.Equal(a["shared/ctx"].Data, b["shared/ctx"].Data)
}

// Half of the attacker's images of other classes than the target have other features and the target's label; other
// clients' images do not. All test images of other classes are tested with and without the trigger. The accuracy on
// images with it is the attack's success.
func TestBackdoor(t *testing.T) {
	c := smallConfig("promptfl")
	plain := open(t, c)
	c.Attack = attack.Config{Kind: attack.Backdoor, Clients: []int{2}, Strength: 3, Target: 1, Poison: 0.5,
		Trigger: 0.4}
	b := open(t, c)
	for i := range b.Experiment.Clients {
		was, rows := labelsOf(t, plain.Experiment.Clients[i].Train)
		now, poisoned := labelsOf(t, b.Experiment.Clients[i].Train)
		changed, others := 0, 0
		for k := range was {
			if was[k] != 1 {
				others++
			}
			switch {
			case rows[k] == poisoned[k] && was[k] == now[k]:
			case rows[k] != poisoned[k] && was[k] != 1 && now[k] == 1:
				changed++
			default:
				t.Errorf("client %d, example %d: label %d became %d, features changed: %v", i, k, was[k], now[k],
					rows[k] != poisoned[k])
			}
		}
		want := 0
		if i == 2 {
			want = int(math.Floor(float64(others)/2 + 0.5))
		}
		if changed != want {
			t.Errorf("client %d: %d of %d images of other classes carry the trigger, by hand %d", i, changed, others,
				want)
		}
	}
	r := finish(t, b)
	last := r.Records[len(r.Records)-1]
	x, y := last.EvaluationSets[metrics.TriggeredSet], last.EvaluationSets[metrics.UntriggeredSet]
	if x.Examples != 12 || y.Examples != 12 { // 3 other classes, 2 images in each of 2 domains
		t.Errorf("%d and %d images", x.Examples, y.Examples)
	}
	if a := r.Summary.Attack; a == nil || a.SuccessGlobal == nil || math.Abs(*a.SuccessGlobal-(x.Evaluations.Global.
		PerClient[0]+x.Evaluations.Global.PerClient[1])/2) > 1e-12 {
		t.Errorf("the summary says %s", fmt.Sprintf("%+v", a))
	}
	c.Attack.Target = 4
	refuses(t, c, "attack.target: 4 is not one of the 4 classes")
	c = smallConfig("promptfl")
	c.Attack.Kind, c.Train.Centralised = attack.SignFlip, true
	refuses(t, c, "train.centralised", "attack")
}
