package client

import (
	"crypto/sha256"
	"fmt"
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	_ "promptfed/runtime/ops"
	"promptfed/runtime/tensor"
)

// By hand, images of 12 numbers. Two rows of each image times [6,100] take 1,200 multiplications and additions, and
// give 200 numbers: 5.7 for each of 212. A product with [100,50] adds 10,000 and gives 100 numbers: 100 for each of
// 112. Mixed with a parameter, the larger part is cut where it pays, and otherwise nothing is: the smaller part saves
// less. Two values that share their products save them once.
func TestWhereImagesAreCut(t *testing.T) {
	cut := func(least float64, build func(small, large graph.Node, param func(int) graph.Node) []graph.Node) string {
		g := graph.New()
		pixels := g.InputFrom(method.Input{Kind: method.RowInput, Name: method.PixelsInput}, graph.Float,
			graph.Shape{graph.Sym("B"), graph.StaticDim(3), graph.StaticDim(2), graph.StaticDim(2)})
		small := pixels.Reshape(-1, 6).MatMul(g.Const(tensor.New(6, 100)))
		var out []graph.Output
		for i, n := range build(small, small.MatMul(g.Const(tensor.New(100, 50))), func(n int) graph.Node {
			return g.Input(fmt.Sprint("param/", n), graph.Float, graph.Static(n))
		}) {
			out = append(out, graph.Output{Name: fmt.Sprint(i), Node: n})
		}
		rest, parts := cutImages(out, least)
		text := fmt.Sprint(productsOf(nodesOf(rest)...), " left")
		for _, p := range parts {
			text += fmt.Sprint("; ", p.Name, " ", ofOneImage(p.Node), " of ", productsOf(p.Node))
		}
		return text
	}
	type nodes = []graph.Node
	type param = func(int) graph.Node
	onSmall := func(small, _ graph.Node, p param) nodes { return nodes{small.Add(p(100))} }
	onLarge := func(_, large graph.Node, p param) nodes { return nodes{large.Add(p(50))} }
	onBoth := func(_, large graph.Node, p param) nodes { return nodes{large.Exp().Add(p(50)), large.Neg().Add(p(50))} }
	for _, c := range []struct {
		got, want string
	}{
		{cut(5, onSmall), "0 left; alone0 [2 100] of 1200"}, {cut(6, onSmall), "1200 left"},
		{cut(90, onLarge), "0 left; alone0 [2 50] of 11200"}, {cut(101, onLarge), "11200 left"},
		{cut(34, onBoth), "0 left; alone0 [2 50] of 11200; alone1 [2 50] of 11200"}, {cut(60, onBoth), "11200 left"},
		{cut(5, func(_, _ graph.Node, p param) nodes { return nodes{p(50).Exp()} }), "0 left"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

// The key of an image's values covers the graph, its weights, and every bit of the pixels.
func TestKeysOfImages(t *testing.T) {
	image := func(v ...float32) *tensor.Tensor { return tensor.Of(v, 1, len(v)) }
	seen := map[[sha256.Size]byte]int{}
	for graph := range 2 {
		p := imageParts{key: sha256.Sum256([]byte{byte(graph)})}
		for _, pixels := range []*tensor.Tensor{image(0, 1), image(1, 0), image(float32(math.Copysign(0, -1)), 1),
			image(0, math.Nextafter32(1, 2))} {
			seen[p.of(pixels)]++
		}
	}
	if len(seen) != 8 {
		t.Errorf("8 images have %d keys", len(seen))
	}
}

// A cache of fixed values keeps the first ones.
func TestFixedCache(t *testing.T) {
	c := newValueCache(10, 0)
	c.fixed = true
	made := ""
	for _, name := range []string{"a", "b", "c", "b", "a", "c", "d"} {
		if _, err := c.once(sha256.Sum256([]byte(name)), func() (any, int, error) {
			made += name
			return name, 4, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if made != "abccd" || c.size != 8 {
		t.Errorf("made %s and keeps %d bytes", made, c.size)
	}
}
