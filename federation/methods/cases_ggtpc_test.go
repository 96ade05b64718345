package methods_test

import (
	"slices"

	"promptfed/federation/methodtest"
)

func init() { cases = append(cases, ggtpcCases...) }

// noisy names the tensors that GGTPC traces if the image tower runs in the step.
func noisy(base methodtest.Names) methodtest.Names {
	n := ggtpc(base, "cov", false, shapes...)
	n.Draw = append(n.Draw, "noise")
	return n
}

func once(base methodtest.Names) methodtest.Names { return ggtpc(base, "cov", false, shapes...) }

// onceToAll sends once, for clients of one backbone.
func onceToAll(base methodtest.Names) methodtest.Names {
	n := once(base)
	n.Statistic.Broadcast, n.Statistic.PerClient = shapes, nil
	return n
}

var few = options{"tokens": 2, "min_count": 1, "sampling": "class"}

// GGTPC around and inside other layers, and over base methods that read pixels.
var ggtpcCases = []methodtest.Case{
	{Name: "pfeddc", With: []string{"ggtpc"}, Options: dc(options{"min_count": 1}), Zero: noCalibration,
		Names: noisy(dual)},
	{Name: "pfeddc", With: []string{"fedprox", "ggtpc"}, Options: dc(options{"min_count": 1, "vision": "pixels",
		"renormalise": false, "sampling": "sample"}),
		Zero: noCalibration, Loose: true, Names: noisy(dual)},
	{Name: "fedvpt", With: []string{"ggtpc"}, Options: options{"vision_tokens": 2, "min_count": 1, "sampling": "none"},
		Zero: noCalibration, Names: noisy(seen)},
	{Name: "fedclip", With: []string{"ggtpc"}, Options: options{"min_count": 1, "loss": "ce"}, Zero: noCalibration,
		Alike: true, Names: onceToAll(adapter)},

	{Name: "promptfl", With: []string{"ggtpc", "scaffold"}, Options: few,
		Names: scaffolded(once(context))},
	{Name: "promptfl", With: []string{"scaffold", "ggtpc"}, Options: few, Zero: options{"ggtpc": noCalibration},
		Names: scaffolded(once(context))},
	{Name: "fedpha", With: []string{"ggtpc", "moon"}, Options: with(exactNull, options{"min_count": 1}), Zero: noMOON,
		Names: once(two)},
	{Name: "promptfl", With: []string{"feddyn", "ggtpc"}, Options: few, Zero: noCalibration,
		Names: dynamic(once(context))},
	{Name: "promptfl", With: []string{"ggtpc", "fedopt"}, Options: few, Zero: noOpt, Names: adaptive(once(context),
		true)},
	{Name: "coop", With: []string{"fedproto", "ggtpc"}, Options: with(few, options{"prototypes": true,
		"sampling": "sample"}), Zero: noCalibration,
		Names: tied(ggtpc(alone, "cov", false, slices.Concat(shapes, places)...))},
	{Name: "promptfl", With: []string{"ggtpc", "fedproto"}, Options: few, Zero: noProto, Names: tied(once(context))},
	{Name: "promptfl", With: []string{"ggtpc", "fedntd"}, Options: few, Zero: noNTD, Names: once(context)},
	{Name: "pfeddc", With: []string{"ggtpc", "fedproto"}, Options: dc(options{"min_count": 1, "of": "image"}),
		Zero: noProto, Names: tied(noisy(dual))},
}
