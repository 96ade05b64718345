package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Report is the result of Run. Times are in seconds, rates in GFLOP/s, memory in bytes.
type Report struct {
	Backbone   string       `json:"backbone"`
	Width      int          `json:"width"`
	Layers     int          `json:"layers"`
	Tokens     int          `json:"prompt_tokens"`
	Batch      int          `json:"batch"`
	Prepack    bool         `json:"prepack"`
	Quick      bool         `json:"quick"`
	Weights    int64        `json:"weight_bytes"` // resident once per backbone; 0 means unknown
	Cores      int          `json:"cores"`
	Platform   string       `json:"platform"`
	Results    []Result     `json:"results"`
	SideBySide []SideBySide `json:"side_by_side"`
	Projectors []Projector  `json:"projectors"`
}

// Result is the result for one class list and one number of threads. Rates are computed from medians. The rates of the
// step and of FedPHA count only the necessary operations (clip.Text.StepFLOPs). Speedup and percentages are medians
// over turns in which both sides ran one after the other.
type Result struct {
	Classes    string `json:"classes"`
	ClassCount int    `json:"class_count"`
	Threads    int    `json:"threads"`
	Rows       int    `json:"rows"` // tokens in the step's linear layers

	Step     Timing  `json:"step"`
	StepRate float64 `json:"step_gflops"`

	Plain        Timing  `json:"plain"`         // scaled to all classes
	PlainClasses int     `json:"plain_classes"` // classes in one run; fewer than all means scaled times
	PlainRate    float64 `json:"plain_gflops"`
	Speedup      float64 `json:"speedup"` // plain divided by step

	GEMM       Timing  `json:"gemm"` // ONNX Runtime's bare products with the step's shapes
	GEMMRate   float64 `json:"gemm_gflops"`
	SquareRate float64 `json:"square_gflops"` // one product of 1024 x 1024 matrices
	OfGEMM     float64 `json:"percent_of_gemm"`
	Own        Timing  `json:"own_products"` // the step's own products; GEMM without AVX-512 or prepacked weights
	OwnRate    float64 `json:"own_gflops"`
	OfOwn      float64 `json:"percent_of_own"`

	FedPHA       Timing  `json:"fedpha"` // three prompts and the projector
	FedPHARate   float64 `json:"fedpha_gflops"`
	FedPHAOfGEMM float64 `json:"fedpha_percent_of_gemm"` // percent of bare products with its shapes

	GradientError float64  `json:"gradient_error"` // largest difference between the two steps, over the largest entry
	StepBytes     int64    `json:"step_bytes"`     // per worker: resident after a step, without weights; 0: unknown
	PlainBytes    int64    `json:"plain_bytes"`
	Targets       []Target `json:"targets"`
}

// Target is a performance target of the project.
type Target struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// SideBySide compares parallel clients of one thread each with sequential clients of all threads. Times are for one
// step of every client.
type SideBySide struct {
	Classes  string  `json:"classes"`
	Clients  int     `json:"clients"`
	Together Timing  `json:"together"`
	InTurn   Timing  `json:"in_turn"`
	Speedup  float64 `json:"speedup"`
}

// Projector is the time of one kind of FedPHA's projector.
type Projector struct {
	Kind string `json:"kind"`
	Time Timing `json:"time"`
}

// Missed returns the targets that were not reached.
func (r Report) Missed() []Target {
	var out []Target
	for _, res := range r.Results {
		for _, t := range res.Targets {
			if !t.Met {
				out = append(out, t)
			}
		}
	}
	return out
}

// Table returns the report as text.
func (r Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "text tower %s: width %d, %d layers; prompts of %d tokens, %d images a step; %d cores, %s, "+
		"prepacked weights %s, %d MB for the backbone\n\n",
		r.Backbone, r.Width, r.Layers, r.Tokens, r.Batch, r.Cores, r.Platform, yes(r.Prepack), r.Weights/1e6)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "classes\tthreads\tstep ms (min-max)\tplain ms (min-max)\tfaster\tstep GFLOP/s\tGEMM GFLOP/s\tof "+
		"GEMM\town GFLOP/s\tof own\t1024³ GFLOP/s\tFedPHA ms\tof GEMM\tgradients differ\tstep MB\tplain MB")
	for _, x := range r.Results {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.1fx\t%.1f\t%.1f\t%.0f %%\t%.1f\t%.0f %%\t%.1f\t%.1f\t%.0f %%\t%.0e\t%d\t%d\n",
			x.Classes, x.Threads, ms(x.Step), ms(x.Plain), x.Speedup, x.StepRate, x.GEMMRate, x.OfGEMM, x.OwnRate,
			x.OfOwn, x.SquareRate, 1e3*x.FedPHA.Median, x.FedPHAOfGEMM, x.GradientError, x.StepBytes/1e6,
			x.PlainBytes/1e6)
	}
	w.Flush()
	fmt.Fprintln(&b, "times are medians; \"faster\", \"of GEMM\" and \"of own\" are medians of ratios within a turn; "+
		"GEMM are ONNX Runtime's matrix products, own those that the step takes")
	for _, x := range r.Results {
		if x.PlainClasses < x.ClassCount {
			fmt.Fprintf(&b, "%s, threads %d: the plain step ran on %d of %d classes at a time, to save memory and "+
				"time; its time and memory are of those, the time scaled to all.\n",
				x.Classes, x.Threads, x.PlainClasses, x.ClassCount)
		}
	}
	for _, x := range r.SideBySide {
		fmt.Fprintf(&b, "\n%s: %d clients of one thread side by side take %s ms a step each, one client of %d "+
			"threads %s ms for %d steps: %.2fx\n",
			x.Classes, x.Clients, ms(x.Together), x.Clients, ms(x.InTurn), x.Clients, x.Speedup)
	}
	r.projectors(&b)
	fmt.Fprintln(&b, "\ntargets")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, x := range r.Results {
		for _, t := range x.Targets {
			fmt.Fprintf(w, "  %s, threads %d\t%.1f %s\twanted %g\t%s\n", x.Classes, x.Threads, t.Got, t.What, t.Want,
				verdict(t.Met))
		}
	}
	w.Flush()
	return b.String()
}

func (r Report) projectors(b *strings.Builder) {
	if len(r.Projectors) == 0 || len(r.Results) == 0 {
		return
	}
	fmt.Fprintln(b, "\nprojector of FedPHA, in ms and as a part of its step")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, p := range r.Projectors {
		fmt.Fprintf(w, "  %s\t%s", p.Kind, ms(p.Time))
		for _, x := range r.Results {
			fmt.Fprintf(w, "\t%.1f %% of %s, threads %d", 100*p.Time.Median/x.FedPHA.Median, x.Classes, x.Threads)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func ms(t Timing) string {
	return fmt.Sprintf("%.1f (%.1f-%.1f)", 1e3*t.Median, 1e3*t.Min, 1e3*t.Max)
}

func yes(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}
