package calibration

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/runtime/tensor"
)

// aggregate computes axes and prototypes from the answers of the clients of each backbone.
func (m GGTPC) aggregate(global *method.Global, ups []method.Upload) error {
	groups := map[string][]moments{}
	for k := range global.Clients {
		if global.HasJoined(k) {
			groups[global.Info(k).Backbone] = nil
		}
	}

	for _, u := range ups {
		if !global.HasJoined(u.Client) {
			continue
		}
		a, err := m.read(u)
		if err != nil {
			return err
		}
		name := global.Info(u.Client).Backbone
		groups[name] = append(groups[name], a)
	}

	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := m.tell(global, name, len(groups) == 1 && global.AllJoined(), groups[name]); err != nil {
			return fmt.Errorf("backbone %s: %w", name, err)
		}
	}

	return nil
}

// tell sends the axes and prototypes of one backbone to its clients; without axes where nobody answered.
func (m GGTPC) tell(global *method.Global, backbone string, only bool, answers []moments) error {
	if len(answers) == 0 {
		i := slices.IndexFunc(global.Infos, func(p method.ClientInfo) bool { return p.Backbone == backbone })
		if i < 0 {
			return nil
		}
		answers = []moments{{client: i, n: make([]int, global.Classes),
			mean: tensor.New(global.Classes, global.Infos[i].Dim)}}
	}

	for _, a := range answers[1:] {
		if !a.mean.SameShape(answers[0].mean) {
			return fmt.Errorf("client %d answered mean %v, client %d %v", a.client, a.mean, answers[0].client,
				answers[0].mean)
		}
	}

	prior := tensor.Map{}
	if m.Strength > 0 {
		var err error
		if prior[ggtpcAxes], prior[ggtpcSizes], err = m.shape(global, answers); err != nil {
			return err
		}
	}

	var clients []int
	for k := range global.Clients {
		if global.Info(k).Backbone == backbone {
			clients = append(clients, k)
		}
	}

	aggregate.Send(global, only, clients, prior)
	if m.Prototypes {
		for _, k := range clients {
			sent := global.ExtrasFor(k)
			sent[ggtpcPlaces], sent[ggtpcLabels] = prototypes(global, k, answers)
		}
	}

	return nil
}

// selected returns the fewest clients that together have the share of a class's examples, and their examples' number.
func (m GGTPC) selected(answers []moments, class int) ([]moments, int) {
	total := 0
	for _, a := range answers {
		total += a.n[class]
	}

	byCount := slices.Clone(answers)
	slices.SortFunc(byCount, func(a, b moments) int { return cmp.Or(b.n[class]-a.n[class], a.client-b.client) })
	sum, last := 0, 0
	for last < len(byCount) && byCount[last].n[class] > 0 &&
		(last == 0 || float64(sum) < m.Share*float64(total)*(1-1e-12)) {
		sum += byCount[last].n[class]
		last++
	}

	return byCount[:last], sum
}

// average returns the mean of a class over answers, weighted by examples.
func average(answers []moments, c int) []float64 {
	total := 0
	mu := make([]float64, answers[0].mean.Shape[1])
	for _, a := range answers {
		total += a.n[c]
		for i, v := range a.mean.Row(c).Data {
			mu[i] += float64(a.n[c]) * float64(v)
		}
	}

	for i := range mu {
		mu[i] /= float64(total)
	}

	return mu
}

// axesOf returns the axes of a class's covariance by eq. 5, the law of total covariance.
func (m GGTPC) axesOf(answers []moments, class int) (principal, error) {
	chosen, total := m.selected(answers, class)
	if len(chosen) == 0 {
		return principal{}, nil
	}

	mu := average(chosen, class)
	dim := len(mu)
	within := mat.NewSymDense(dim, nil)
	var rows []float64
	for _, moments := range chosen {
		weight := float64(moments.n[class]) / float64(total)
		between := make([]float64, dim)
		for i, v := range moments.mean.Row(class).Data {
			between[i] = float64(v) - mu[i]
		}

		if m.Stats == "packed" {
			moments.addCov(within, class, weight)
			within.SymRankOne(within, weight, mat.NewVecDense(dim, between))
			continue
		}

		rows = moments.addFactors(rows, class, weight)
		for _, v := range between {
			rows = append(rows, v*math.Sqrt(weight))
		}
	}

	if m.Stats == "packed" {
		return principalAxes(within, m.Axes)
	}

	return rowAxes(mat.NewDense(len(rows)/dim, dim, rows), m.Axes)
}

// shape returns axes [C,K,D] and sizes [C,K]; K is the largest number of axes of a class, and at least 1. It ends
// between classes if the run ends.
func (m GGTPC) shape(global *method.Global, answers []moments) (axes, sizes *tensor.Tensor, err error) {
	classes, dim := answers[0].mean.Shape[0], answers[0].mean.Shape[1]
	all := make([]principal, classes)
	var eg errgroup.Group
	eg.SetLimit(runtime.GOMAXPROCS(0))
	for c := range all {
		eg.Go(func() (err error) {
			if err := global.Over(); err != nil {
				return err
			}
			all[c], err = m.axesOf(answers, c)
			return err
		})
	}

	if err := eg.Wait(); err != nil {
		return nil, nil, err
	}

	k := 1
	for _, a := range all {
		k = max(k, len(a.Sizes))
	}

	axes, sizes = tensor.New(classes, k, dim), tensor.New(classes, k)
	for c, a := range all {
		for j, u := range a.Vectors {
			sizes.Data[c*k+j] = float32(a.Sizes[j])
			for i, v := range u {
				axes.Data[(c*k+j)*dim+i] = float32(v)
			}
		}
	}

	return axes, sizes, nil
}

// prototypes returns the class means of domains other than a client's, by class and then by domain.
func prototypes(global *method.Global, client int, answers []moments) (mean, label *tensor.Tensor) {
	domains := map[string][]moments{}
	for _, a := range answers {
		if name := domainOf(global, a.client); name != domainOf(global, client) {
			domains[name] = append(domains[name], a)
		}
	}

	classes, d := answers[0].mean.Shape[0], answers[0].mean.Shape[1]
	mean, label = tensor.New(0, d), tensor.OfInts([]int64{}, 0)
	for c := range classes {
		for _, name := range slices.Sorted(maps.Keys(domains)) {
			has := slices.DeleteFunc(slices.Clone(domains[name]), func(a moments) bool { return a.n[c] == 0 })
			if len(has) == 0 {
				continue
			}
			for _, v := range average(has, c) {
				mean.Data = append(mean.Data, float32(v))
			}
			label.Ints = append(label.Ints, int64(c))
		}
	}

	mean.Shape[0], label.Shape[0] = len(label.Ints), len(label.Ints)
	return mean, label
}

// domainOf returns the name of a client's domain; a client without one is a domain of its own.
func domainOf(global *method.Global, client int) string {
	if name := global.Info(client).Domain; name != "" {
		return "domain " + name
	}
	return fmt.Sprintf("client %06d", client)
}
