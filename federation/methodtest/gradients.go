package methodtest

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// gradients: the optimizer gets the derivative of the loss, by four-point differences of step 0.02 in some directions
// of each parameter. These are unit vectors of at most 16 elements of one size and of different signs. Each element is
// in one of them. The bound allows an element an error of 2e-3 of the largest element. The learning rate is 0, and
// parameters as the server sent them and as the client last left them have other values. Each loss is one run of the
// engine's own step.
func (c Case) gradients(t *testing.T) {
	if c.NoDerivative {
		t.Skip("its gradient is not the derivative, by intention")
	}

	experiment := c.experiment(t)
	at := &probe{Method: experiment.Method}
	experiment.Method = at
	experiment.Training = spec.Training{Epochs: 2, Batch: 100, Optim: optim.Config{Name: "sgd"}}
	first := experiment.Clients[1]
	worker := client.NewWorker(experiment, client.Settings{})
	defer worker.Close()

	task, plan := experiment.Task(first), experiment.Plan
	plan.Clients = 4
	global := &method.Global{Clients: 4, Task: task, Sampling: plan.Sampling(), Classes: len(Classes), Seed: 7,
		Width:     Width,
		Shared:    tensor.Map{},
		Broadcast: tensor.Map{},
		PerClient: map[int]tensor.Map{}, State: tensor.Map{}}

	goldentest.NoError(t, at.Method.Start(global))

	for _, site := range experiment.Clients {
		global.Infos = append(global.Infos, method.ClientInfo{Backbone: site.Backbone.Name(),
			Dim: site.Backbone.Task().Dim})
	}

	for _, q := range at.Method.Statistics(0) { // without answers
		goldentest.NoError(t, q.Aggregate(global, nil))
	}

	maps.Copy(global.Broadcast, global.PerClient[first.ID])
	here, sent, private, own := tensor.Map{}, tensor.Map{}, tensor.Map{}, tensor.Map{}
	for i, p := range at.Params(task) {
		here[p.Name] = Values(300+i, 0.6, p.Shape...)
		if p.Owner == method.Shared {
			sent[p.Name] = Values(400+i, 0.6, p.Shape...)
			own[p.Name] = Values(500+i, 0.6, p.Shape...)
		} else {
			private[p.Name] = Values(600+i, 0.6, p.Shape...)
		}
	}

	kept := tensor.Map{}
	fill(at.Method, task, global.Broadcast, kept)
	order := message.Instruction{Kind: message.Train, Round: 1, Clients: []int{1}, Total: 4, Shared: sent,
		Broadcast: global.Broadcast}
	steps := func(w *client.Worker, params tensor.Map) tensor.Map {
		rec := trace.NewRecorder()
		w.Settings.Tracer, at.first, at.second = rec, here, params
		if _, _, err := w.Train(context.Background(), first, order, message.ClientState{Private: private, Own: own,
			Method: kept}); err != nil {
			t.Fatal(err)
		}
		return rec.Tensors.WithoutPrefix("r1/c1")
	}

	if len(here) == 0 {
		t.Skip("nothing is learned")
	}

	grads := steps(worker, here).WithoutPrefix("s0/grad")
	largest := 0.0
	learned := slices.DeleteFunc(here.Names(), func(name string) bool { return slices.Contains(c.Names.idle(), name) })
	for _, name := range learned {
		if grads[name] == nil {
			t.Fatalf("no gradient of %s", name)
		}
		largest = max(largest, grads[name].MaxAbs())
	}

	for precision, bound := range map[string]float64{ort.Float16: 0.01, ort.BFloat16: 0.1} {
		if precision == ort.BFloat16 && !(testing.Verbose() && orttest.OnCPU()) { // only the table needs it
			continue
		}

		low := client.NewWorker(experiment, client.Settings{Session: ort.Options{Bind: true, Precision: precision},
			DeviceGraphs: true})
		defer low.Close()
		low.Experiment.Training.Epochs = 1
		rounded := steps(low, here).WithoutPrefix("s0/grad")
		for _, name := range learned {
			d := tensor.Distance(rounded[name], grads[name]) / largest
			if !(d <= bound) {
				t.Errorf("the gradient of %s with products of %s differs by %g of its largest element", name,
					precision, d)
			}
			if c.Rounded != nil {
				c.Rounded(precision, d)
			}
		}
	}

	const h, most = 0.02, 16
	for _, name := range learned {
		n := here[name].Len()
		for k, directions := 0, min(n, max(2, (n+most-1)/most)); k < directions; k++ {
			along, got := tensor.New(here[name].Shape...), 0.0
			size := 1 / math.Sqrt(float64((n-k+directions-1)/directions))
			for i := k; i < n; i += directions {
				along.Data[i] = float32(math.Copysign(size, Value(800, i)))
				got += float64(along.Data[i]) * float64(grads[name].Data[i])
			}

			f := func(d float64) float64 {
				moved := here.Clone()
				moved[name].Axpy(d, along)
				return float64(steps(worker, moved)["s1/loss"].Data[0])
			}

			want := (8*(f(h)-f(-h)) - (f(2*h) - f(-2*h))) / (12 * h)
			if !(math.Abs(got-want) <= 2e-3*size*largest) {
				t.Errorf("the gradient of %s in direction %d is %g, differences give %g (largest %g)", name, k, got,
					want, largest)
			}
		}
	}
}

// fill sets extras of the server and state of a client that the loss reads, where they are absent or zeros.
func fill(m method.Method, task method.ClientSpec, down, kept tensor.Map) {
	_, _, loss := method.LossOf(m, task)
	for i, n := range graph.Inputs(loss) {
		shape, _ := n.Shape().Ints()
		in := method.InputOf(n)
		to, ok := map[method.InputKind]tensor.Map{method.BroadcastInput: down, method.StateInput: kept}[in.Kind]
		if ok && (to[in.Name] == nil || to[in.Name].MaxAbs() == 0) {
			to[in.Name] = Values(700+i, 0.6, shape...)
		}
	}
}
