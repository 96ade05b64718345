package methodtest

import (
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// ONNXFile writes a method's file: outputs builds the graph, of ONNX's own operators.
func ONNXFile(meta fromfile.Metadata, outputs func(g *graph.Graph) []graph.Output) ([]byte, error) {
	model, err := graph.Model(outputs(graph.New())...)
	if err != nil {
		return nil, err
	}

	meta.Version = fromfile.Version
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}

	model.MetadataProps = []*onnx.StringStringEntryProto{{Key: fromfile.MetadataKey, Value: string(text)}}
	return onnx.Marshal(model)
}

// ONNXFiles are methods of this project as files, by name: "promptfl" is the file of the program, the others are
// witnesses that a file does what Go does.
var ONNXFiles = map[string]func() ([]byte, error){
	"promptfl": ExampleFile, "promptfl-l2": l2File, "fedprox": fedProxFile, "fedotp": fedOTPFile,
	"fedotp-unrolled": unrolledFile, "fedpha": fedPHAFile, "scaffold": scaffoldFile,
	"kgcoop": kgCoOpFile, "kgcoop-words": kgCoOpWordsFile, "inputs": inputsFile, "per-image": perImageFile,
	"noise": noiseFile,
}

// ONNXOption returns the option file of one of ONNXFiles.
func ONNXOption(name string) string {
	b, err := ONNXFiles[name]()
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err)) // in a test
	}
	return string(layer.EmbedFile(name+".onnx", b))
}

// Inputs of methods' graphs.
var (
	batch, classes, dim, width, length = graph.Sym("B"), graph.Sym("C"), graph.Sym("D"), graph.Sym("w"), graph.Sym("T")
)

func imageIn(g *graph.Graph) graph.Node {
	return g.Input("image", graph.Float, graph.Shape{batch, dim})
}
func scalarIn(g *graph.Graph, name string) graph.Node {
	return g.Input(name, graph.Float, graph.Static())
}
func textIn(g *graph.Graph, name string) graph.Node {
	return g.Input("text/"+name, graph.Float, graph.Shape{classes, dim})
}
func promptIn(g *graph.Graph, name string) graph.Node {
	return g.Input(name, graph.Float, graph.Shape{length, width})
}

// scores returns exp(logit_scale) x tᵀ.
func scores(g *graph.Graph, x, t graph.Node) graph.Node {
	return x.MatMul(t.Transpose(1, 0)).Mul(scalarIn(g, "scale"))
}

// crossEntropy is the mean of -log softmax(z)[label], with the numbers of classes compared to labels.
func crossEntropy(g *graph.Graph, z graph.Node) graph.Node {
	label := g.Input("label", graph.Int64, graph.Shape{batch})
	picked := g.Apply(graph.Standard, "GatherElements", graph.Attrs{"axis": graph.Attr(1)}, z.LogSoftmax(-1),
		label.Unsqueeze(1))
	return picked.Mean().Neg()
}

func sizesOf(symbols ...string) (out []fromfile.Size) {
	for _, s := range symbols {
		out = append(out, fromfile.Size{Sym: s})
	}
	return out
}

// output names a value of a graph.
func output(name string, n graph.Node) graph.Output { return graph.Output{Name: name, Node: n} }

// outputs returns class scores, the loss, which is the sum of its terms, and the terms.
func outputs(logits graph.Node, terms ...graph.Output) []graph.Output {
	loss := terms[0].Node
	for _, term := range terms[1:] {
		loss = loss.Add(term.Node)
	}
	return append([]graph.Output{output("logits", logits), output("loss", loss)}, terms...)
}

// prompt declares a prompt [T,w].
func prompt(name, owner string, tokens int, std float64) fromfile.Parameter {
	return fromfile.Parameter{Name: name, Owner: owner, Tokens: tokens,
		Tensor: fromfile.Tensor{Shape: sizesOf("T", "w"), Std: std}}
}

// ExampleFile returns the file of the program, PromptFL. It has all that wrappers can ask for: the engine's cosine
// shows them the compared features, and the engine's cross entropy lets them replace the loss of the labels.
func ExampleFile() ([]byte, error) {
	return ONNXFile(fromfile.Metadata{Parameters: []fromfile.Parameter{prompt("ctx", "shared", 16, 0.02)},
		Functions: map[string]fromfile.Function{
			"scores":        {Function: "cosine", Of: []string{"image", "text/ctx"}},
			"cross_entropy": {Function: "cross_entropy", Of: []string{"logits"}}},
		Mean: "examples"},
		func(g *graph.Graph) []graph.Output {
			z := g.Input("function/scores", graph.Float, graph.Shape{batch, classes})
			return []graph.Output{{Name: "logits", Node: z.Identity()},
				{Name: "loss", Node: scalarIn(g, "function/cross_entropy").Identity()}}
		})
}

// plainPromptFL returns class scores and cross entropy of one prompt, in ONNX's operators alone.
func plainPromptFL(g *graph.Graph) (logits, loss graph.Node) {
	logits = scores(g, imageIn(g), textIn(g, "ctx"))
	return logits, crossEntropy(g, logits)
}

var onePrompt = fromfile.Metadata{Parameters: []fromfile.Parameter{prompt("ctx", "shared", 3, 0.4)}, Mean: "examples"}

// L2 is the weight of promptfl-l2's decay: loss + L2/2 |ctx|².
const L2 = 0.25

func l2File() ([]byte, error) {
	return ONNXFile(onePrompt, func(g *graph.Graph) []graph.Output {
		z, ce := plainPromptFL(g)
		decay := promptIn(g, "param/ctx").Square().Sum().MulScalar(L2 / 2)
		return outputs(z, output("cross_entropy", ce), output("decay", decay))
	})
}

// ProxMu is FedProx's mu.
const ProxMu = 2

func fedProxFile() ([]byte, error) {
	return ONNXFile(onePrompt, func(g *graph.Graph) []graph.Output {
		z, ce := plainPromptFL(g)
		d := promptIn(g, "param/ctx").Sub(promptIn(g, "received/ctx")).Square().Sum().MulScalar(ProxMu / 2.)
		return outputs(z, output("cross_entropy", ce), output("proximal", d))
	})
}

// localAndGlobal declares the prompts of FedOTP and FedPHA.
func localAndGlobal(global, local int) []fromfile.Parameter {
	return []fromfile.Parameter{prompt("global", "shared", global, 0.4), prompt("local", "private", local, 0.4)}
}

// similarities returns [2,B,C,M]: how alike patches and both prompts' class features are.
func similarities(g *graph.Graph) graph.Node {
	patches := g.Input("patches", graph.Float, graph.Shape{batch, graph.Sym("M"), dim})
	// [B,C,M]
	scores := func(text graph.Node) graph.Node { return patches.MatMul(text.Transpose(1, 0)).Transpose(0, 2, 1) }
	return graph.Stack(scores(textIn(g, "global")), scores(textIn(g, "local")))
}

func fedOTPFile() ([]byte, error) {
	return ONNXFile(fromfile.Metadata{Parameters: localAndGlobal(3, 3), Mean: "examples",
		Functions: map[string]fromfile.Function{"plan": {Function: "transport", Of: []string{"similarity"}}}},
		func(g *graph.Graph) []graph.Output {
			sim := similarities(g)
			plan := g.Input("function/plan", graph.Float, graph.Shape{graph.StaticDim(2), batch, classes,
				graph.Sym("M")})
			z := plan.Mul(sim).Sum(0, -1).Mul(scalarIn(g, "scale"))
			return append(outputs(z, output("cross_entropy", crossEntropy(g, z))), output("similarity", sim))
		})
}

// UnrolledSteps are the iterations of fedotp-unrolled.
const UnrolledSteps = 8

// unrolledFile writes out the iterations of FedOTP's plan: u = min(1/(M K v), 1), v = 0.4/(Kᵀu), from v = 1.
func unrolledFile() ([]byte, error) {
	meta := fromfile.Metadata{Parameters: localAndGlobal(3, 3), Mean: "examples", Detach: []string{"plan"}}
	return ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		sim := similarities(g)
		one := g.Scalar(1)
		patches := g.Apply(graph.Standard, "ReduceSum", graph.Attrs{"keepdims": graph.Attr(0)},
			sim.MulScalar(0).AddScalar(1).Slice(0, 0, 1).Slice(1, 0, 1).Slice(2, 0, 1))
		kernel := sim.AddScalar(-1).MulScalar(10).Exp()
		v := kernel.SumKeep(-1).MulScalar(0).AddScalar(1)
		var u graph.Node
		for range UnrolledSteps {
			u = kernel.Mul(v).SumKeep(0).Mul(patches).Reciprocal().Min(one)
			v = kernel.Mul(u).SumKeep(-1).Reciprocal().MulScalar(0.4)
		}
		plan := kernel.Mul(u).Mul(v)
		z := plan.Mul(sim).Sum(0, -1).Mul(scalarIn(g, "scale"))
		return append(outputs(z, output("cross_entropy", crossEntropy(g, z))), output("plan", plan))
	})
}

func fedPHAFile() ([]byte, error) {
	return ONNXFile(fromfile.Metadata{Parameters: localAndGlobal(3, 2), Mean: "examples",
		Functions: map[string]fromfile.Function{"projector": {Function: "project",
			Of: []string{"param/local", "param/global"}, Options: json.RawMessage(`{"ratio":0.5}`)}}},
		func(g *graph.Graph) []graph.Output {
			x, tg, tl, tp := imageIn(g), textIn(g, "global"), textIn(g, "local"), textIn(g, "projector")
			z := scores(g, x, tl)
			own, all := crossEntropy(g, z), crossEntropy(g, scores(g, x, tg))
			pull := tl.Sub(tp).Square().Sum(-1).Mean()
			push := tl.Sub(tg).Norm(-1).Neg().AddScalar(1).ReLU().Mean()
			return outputs(z, output("cross_entropy_local", own), output("cross_entropy_global", all),
				output("pull", pull), output("push", push))
		})
}

// scaffoldFile is SCAFFOLD over PromptFL as option II of its paper writes it: the linear term (c - c_i)·y has the
// gradient that corrects each step. A client sets c_i+ = c_i - c + (x - y)/(K lr) and uploads c_i+ - c_i; the server
// takes the plain mean of the prompts, and adds 1/N of the sum of the differences to c.
func scaffoldFile() ([]byte, error) {
	like := map[string]fromfile.Tensor{"c": {Like: "ctx"}}
	meta := fromfile.Metadata{Parameters: onePrompt.Parameters, State: like, Down: like,
		Up: map[string]fromfile.Tensor{"dc": {Like: "ctx"}}}
	return ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		z, ce := plainPromptFL(g)
		y, x := promptIn(g, "param/ctx"), promptIn(g, "received/ctx")
		c, own := promptIn(g, "down/c"), promptIn(g, "state/c")
		correction := c.Sub(own).Mul(y).Sum()
		path := scalarIn(g, "step").Mul(scalarIn(g, "lr"))
		dc := path.Greater(g.Scalar(0)).Where(x.Sub(y).Div(path).Sub(c), c.MulScalar(0)) // a rate of 0 says nothing
		uploads := graph.Shape{graph.Sym("K"), length, width}
		merged := g.Input("uploads/ctx", graph.Float, uploads).Mean(0)
		next := g.Input("uploads/up/dc", graph.Float, uploads).Sum(0).Div(scalarIn(g, "clients/n")).Add(c)
		return append(outputs(z, output("cross_entropy", ce), output("correction", correction)),
			output("next/state/c", own.Add(dc)), output("up/dc", dc), output("merged/ctx", merged),
			output("next/down/c", next))
	})
}

// Knowledge is kgcoop's lambda.
const Knowledge = 8

func kgCoOpFile() ([]byte, error) { return kgCoOp(onePrompt) }

// kgCoOpWordsFile begins at words, more than it has tokens.
func kgCoOpWordsFile() ([]byte, error) {
	meta := onePrompt
	meta.Parameters = slices.Clone(meta.Parameters)
	meta.Parameters[0].Words = prompts.PhotoPrompt
	return kgCoOp(meta)
}

func kgCoOp(meta fromfile.Metadata) ([]byte, error) {
	return ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		z, ce := plainPromptFL(g)
		hand := g.Input("hand", graph.Float, graph.Shape{classes, dim})
		near := textIn(g, "ctx").Mul(hand).Sum(-1).Mean().Neg().AddScalar(1).MulScalar(Knowledge)
		return outputs(z, output("cross_entropy", ce), output("knowledge", near))
	})
}

// inputsFile reads what no other file does: values that the client last trained, earlier class features and scores, and
// numbers.
func inputsFile() ([]byte, error) {
	return ONNXFile(onePrompt, func(g *graph.Graph) []graph.Output {
		z, ce := plainPromptFL(g)
		teacher := g.Input("teacher/logits", graph.Float, graph.Shape{batch, classes})
		numbers := scalarIn(g, "lr").AddScalar(1)
		for _, name := range []string{"classes/n", "client/n", "round"} {
			numbers = numbers.Add(scalarIn(g, name))
		}
		distill := teacher.Softmax(-1).Mul(z.LogSoftmax(-1)).Sum(-1).Mean().Neg()
		moved := textIn(g, "ctx").Sub(textIn(g, "received/ctx")).Add(textIn(g, "before/ctx")).Square().Mean()
		moved = moved.Div(numbers)
		apart := promptIn(g, "param/ctx").Sub(promptIn(g, "before/ctx")).Square().Sum().MulScalar(0.1)
		return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: ce.Add(distill).Add(moved).Add(apart)},
			{Name: "cross_entropy", Node: ce}, {Name: "distillation", Node: distill}}
	})
}

// perImageFile shifts the prompt of each image, as CoCoOp does: ctx + tanh(x W).
func perImageFile() ([]byte, error) {
	weight := fromfile.Parameter{Name: "meta", Owner: "shared",
		Tensor: fromfile.Tensor{Shape: sizesOf("D", "w"), Std: 0.1, Value: 0.05}}
	meta := fromfile.Metadata{Mean: "examples", Parameters: append(slices.Clone(onePrompt.Parameters), weight)}
	return ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		x := imageIn(g)
		shift := x.MatMul(g.Input("param/meta", graph.Float, graph.Shape{dim, width})).Tanh()
		own := promptIn(g, "param/ctx").Unsqueeze(0).Add(shift.Unsqueeze(1)) // [B,T,w]
		text := g.Input("text/own", graph.Float, graph.Shape{batch, classes, dim})
		z := text.MatMul(x.Unsqueeze(2)).Squeeze(2).Mul(scalarIn(g, "scale"))
		return append(outputs(z, output("cross_entropy", crossEntropy(g, z))), output("prompt/own", own))
	})
}

// noiseFile adds noise to images, and to the prompt, and halves the loss in later steps.
func noiseFile() ([]byte, error) {
	meta := onePrompt
	meta.Noise = map[string]fromfile.Noise{"eps": {Shape: sizesOf("B", "D"), Distribution: "normal"},
		"level/x": {Distribution: "uniform"}}
	return ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		z, _ := plainPromptFL(g)
		noise := g.Input("noise/eps", graph.Float, graph.Shape{batch, dim}).Mul(scalarIn(g, "noise/level/x"))
		seen := crossEntropy(g, scores(g, imageIn(g).Add(noise), textIn(g, "ctx")))
		ce := seen.Div(scalarIn(g, "step").AddScalar(1))
		return outputs(z, output("cross_entropy", ce))
	})
}
