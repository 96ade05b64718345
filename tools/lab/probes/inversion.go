package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// stepRate is the learning rate of the attacked step.
const stepRate = 0.05

// inversion prints how well a server reconstructs the features of a client's images from the upload of one step. It
// searches features whose gradient equals the uploaded gradient (Zhu et al., Deep Leakage from Gradients, NeurIPS
// 2019). The labels are known (Zhao et al., iDLG, arXiv 2001.02610, derive them from the gradient).
func (p *probe) inversion(ctx context.Context) error {
	sizes := []int{1, 2, 4, 8}
	fmt.Println("Reconstruction: cosine of an image's feature and what is reconstructed of it, and how often that is " +
		"nearest to the right one\nof all images, from one step on some images of different classes.")
	fmt.Printf("\n| protection |")
	for _, n := range sizes {
		fmt.Printf(" %d image%s |", n, map[bool]string{true: "s"}[n > 1])
	}

	fmt.Printf("\n|:--- |%s\n", string(slices.Repeat([]byte(" ---:|"), len(sizes))))
	for _, s := range append([]protection{{name: "class means, without an upload", blind: true}}, protections...) {
		fmt.Printf("| %s |", s.name)
		for _, n := range sizes {
			var found found
			for _, seed := range seeds {
				if err := p.invert(ctx, s, seed, n, &found); err != nil {
					return fmt.Errorf("%s, %d images: %w", s.name, n, err)
				}
			}
			fmt.Printf(" %.3f, %.0f %% |", found.cosine/found.images, 100*found.right/found.images)
		}
		fmt.Println()
	}

	return nil
}

// found adds up results over images.
type found struct{ images, cosine, right float64 }

// invert runs one step of ten clients on n images each, and reconstructs the images of the first two.
func (p *probe) invert(ctx context.Context, protection protection, seed uint64, n int, sum *found) error {
	dealt, left := p.deal(seed, n, 1)
	experiment, err := p.experiment(protection, seed, dealt, sgd(1, stepRate), 1)
	if err != nil {
		return err
	}

	rec := trace.NewRecorder()
	set := p.source.Settings()
	set.Client.Tracer = rec
	if _, err := engine.Run(ctx, experiment, set); err != nil {
		return err
	}

	received := rec.Tensors.WithoutPrefix("init")
	victim := p.victims[seed]
	if victim == nil {
		if victim, err = p.victim(ctx, seed, received); err != nil {
			return err
		}
		p.victims[seed] = victim
	}

	for k := range 2 {
		rows := dealt[k]
		if protection.summed {
			rows = slices.Concat(dealt...)
		}

		seen := rec.Tensors.WithoutPrefix(fmt.Sprintf("r0/c%d/upload", k))["ctx"]
		if protection.summed {
			seen = rec.Tensors.WithoutPrefix("r0/merged")["ctx"]
		}

		labels := p.pool.Pick(rows).Class
		guess := p.means(left, labels)
		if !protection.blind {
			guess = victim.reconstruct(gradientOf(received["ctx"], seen, stepRate), labels, guess)
		}

		if err := p.judge(rows, guess, sum); err != nil {
			return err
		}

		if protection.summed { // the mean is the same for all clients
			break
		}
	}

	return nil
}

// gradientOf returns the gradient of one step of plain gradient descent.
func gradientOf(from, to *tensor.Tensor, lr float64) []float64 {
	out := float64s(from.Data)
	floats.Sub(out, float64s(to.Data))
	for i := range out {
		out[i] /= lr
	}
	return out
}

func float64s(x []float32) []float64 {
	return convert.Slice(x, func(v float32) float64 { return float64(v) })
}

// features returns the features of rows of the pool.
func (p *probe) features(rows []int) (*tensor.Tensor, error) {
	d := p.pool.Pick(rows)
	b, err := d.Batch(tensor.Indices(d.Len()), method.Rand(0))
	return b[method.ImageInput], err
}

// means returns the unit mean of the features of each label: the server's knowledge without an upload.
func (p *probe) means(rows []int, labels []int64) [][]float64 {
	x, err := p.features(rows)
	if err != nil { // the rows were read before
		panic(err)
	}

	out := make([][]float64, len(labels))
	for k, y := range labels {
		out[k] = make([]float64, x.Shape[1])
		for i, row := range rows {
			if p.pool.Class[row] == y {
				floats.Add(out[k], float64s(x.Row(i).Data))
			}
		}
		unit(out[k])
	}

	return out
}

// judge compares reconstructed features with the images' features.
func (p *probe) judge(rows []int, guess [][]float64, sum *found) error {
	all, err := p.features(tensor.Indices(p.pool.Len()))
	if err != nil {
		return err
	}

	for k, row := range rows {
		best, nearest := -2.0, -1
		for i := range p.pool.Len() {
			c := floats.Dot(float64s(all.Row(i).Data), guess[k])
			if c > best {
				best, nearest = c, i
			}
			if i == row {
				sum.cosine += c
			}
		}

		sum.images++
		if nearest == row {
			sum.right++
		}
	}

	return nil
}

// victim is the server's knowledge about the gradients of clients. A gradient is linear in (p - e_y) xᵀ, with class
// probabilities p and a feature x.
type victim struct {
	classes, dim int
	scale        *mat.Dense // [C,D]; the class scores of x are scale x
	slopes       *mat.Dense // [C D, numbers of the prompt], gradient of each class score by each component of x
}

// victim runs steps on images with one feature each: e_d with the labels c and 0. The difference of the two gradients
// is the gradient of class 0's score minus the gradient of class c's score, for any probabilities.
func (p *probe) victim(ctx context.Context, seed uint64, received tensor.Map) (*victim, error) {
	experiment, err := p.experiment(protection{}, seed, [][]int{{0}}, sgd(1, 1), 1)
	if err != nil {
		return nil, err
	}

	worker := client.NewWorker(experiment, p.source.Settings().Client)
	defer worker.Close()
	task := worker.Task(experiment.Clients[0], 1)
	victim := &victim{classes: len(experiment.Classes), dim: task.Dim}
	victim.slopes = mat.NewDense(victim.classes*victim.dim, received["ctx"].Len(), nil)
	axes := tensor.New(victim.dim, victim.dim)
	for d := range victim.dim {
		axes.Row(d).Data[d] = 1
	}

	rows := func(indices []int, class ...int64) *spec.Features {
		return &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: axes.Rows(indices)}}, Class: class}
	}
	step := func(d int, class int64) ([]float64, error) {
		site := *experiment.Clients[0]
		site.Train = rows([]int{d}, class)
		r, _, err := worker.Train(ctx, &site, message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 1,
			Shared: received}, message.ClientState{})
		if err != nil {
			return nil, err
		}
		return gradientOf(received["ctx"], r.Upload.Shared["ctx"], 1), nil
	}

	for axis := range victim.dim {
		zero, err := step(axis, 0)
		if err != nil {
			return nil, err
		}
		for c := 1; c < victim.classes; c++ {
			g, err := step(axis, int64(c))
			if err != nil {
				return nil, err
			}
			floats.SubTo(g, zero, g)
			victim.slopes.SetRow(c*victim.dim+axis, g)
		}
	}

	local, state := worker.Begin(ctx, experiment.Clients[0], message.Instruction{Kind: message.Test,
		Total: 1, Shared: received}, message.ClientState{})
	scores, err := worker.ScoreRows(ctx, experiment.Clients[0], local, state,
		rows(tensor.Indices(victim.dim), make([]int64, victim.dim)...))
	if err != nil {
		return nil, err
	}

	victim.scale = mat.NewDense(victim.classes, victim.dim, nil)
	for d := range victim.dim {
		victim.scale.SetCol(d, float64s(scores.Row(d).Data))
	}

	return victim, nil
}

// objective returns half the squared distance between g and the mean gradient of images u_i/|u_i|, divided by the
// squared norm of g, over the transmitted numbers. It also writes the gradient with respect to all u into grad unless
// grad is nil.
func (v *victim) objective(u, g []float64, labels []int64, grad []float64) float64 {
	n := len(labels)
	x := mat.NewDense(n, v.dim, slices.Clone(u))
	for i := range n {
		unit(x.RawRowView(i))
	}

	var p, weights mat.Dense // p is softmax(x scaleᵀ)
	p.Mul(x, v.scale.T())
	for i := range n {
		row := p.RawRowView(i)
		floats.AddConst(-floats.LogSumExp(row), row)
	}

	p.Apply(func(_, _ int, score float64) float64 { return math.Exp(score) }, &p)
	residual := mat.DenseCopyOf(&p) // p - e_y
	for i, y := range labels {
		residual.Set(i, int(y), residual.At(i, int(y))-1)
	}

	weights.Mul(residual.T(), x) // Σ (p - e_y) xᵀ / n
	weights.Scale(1/float64(n), &weights)
	var off mat.VecDense
	off.MulVec(v.slopes.T(), mat.NewVecDense(v.classes*v.dim, weights.RawMatrix().Data))
	off.SubVec(&off, mat.NewVecDense(len(g), g))
	for i, v := range g {
		if v == 0 { // not transmitted
			off.SetVec(i, 0)
		}
	}

	norm := floats.Dot(g, g)
	if grad != nil {
		back := mat.NewDense(v.classes, v.dim, nil)
		mat.NewVecDense(v.classes*v.dim, back.RawMatrix().Data).MulVec(v.slopes, &off)
		var by, gx, through mat.Dense
		by.Mul(x, back.T())
		for i := range n { // the derivative of softmax
			row := by.RawRowView(i)
			floats.AddConst(-floats.Dot(row, p.RawRowView(i)), row)
			floats.Mul(row, p.RawRowView(i))
		}

		gx.Mul(residual, back)
		through.Mul(&by, v.scale)
		gx.Add(&gx, &through)
		for i := range n { // the derivative of u/|u|
			slope, row, part := gx.RawRowView(i), x.RawRowView(i), grad[i*v.dim:(i+1)*v.dim]
			floats.AddScaledTo(part, slope, -floats.Dot(slope, row), row)
			floats.Scale(1/(float64(n)*norm*floats.Norm(u[i*v.dim:(i+1)*v.dim], 2)), part)
		}
	}

	return mat.Dot(&off, &off) / 2 / norm
}

// reconstruct searches unit features whose mean gradient is g, starting from guess.
func (v *victim) reconstruct(g []float64, labels []int64, guess [][]float64) [][]float64 {
	problem := optimize.Problem{
		Func: func(u []float64) float64 { return v.objective(u, g, labels, nil) },
		Grad: func(grad, u []float64) { v.objective(u, g, labels, grad) },
	}

	first := slices.Concat(guess...)
	r, err := optimize.Minimize(problem, first, &optimize.Settings{MajorIterations: 1000,
		Converger: optimize.NeverTerminate{}}, &optimize.LBFGS{})
	if r == nil { // the start has no gradient
		panic(err)
	}

	out := make([][]float64, len(labels))
	for i := range out {
		out[i] = slices.Clone(r.X[i*v.dim : (i+1)*v.dim])
		unit(out[i])
	}

	return out
}

func unit(x []float64) { floats.Scale(1/floats.Norm(x, 2), x) }
