package graph

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// Signature identifies what outputs compute, placeholders and gradient stops included: graphs with equal signatures
// become equal models, with equal gradients. The content of constants enters, with the place of those in files, and the
// operator set; the order in which unused operators were made does not.
func Signature(outputs ...Output) ([sha256.Size]byte, error) {
	if len(outputs) == 0 {
		return [sha256.Size]byte{}, errors.New("a graph needs at least one output")
	}
	roots, err := checkOutputs(outputs)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	h := sha256.New()
	fmt.Fprintln(h, roots[0].Graph().opset)
	number := map[*Op]int{}
	read := func(nodes []Node) {
		for _, n := range nodes {
			if n.OK() {
				fmt.Fprintf(h, " %d.%d", number[n.v.op], n.v.index)
			} else {
				fmt.Fprint(h, " -")
			}
		}
	}
	for i, op := range Reachable(roots...) {
		number[op] = i
		fmt.Fprintf(h, "%v %q %q %q", op.def != nil && op.def.write != nil, op.Domain, op.Kind, op.Name)
		read(op.In)
		fmt.Fprint(h, " uses")
		read(op.Uses)
		for _, name := range slices.Sorted(maps.Keys(op.Attrs)) {
			if err := writeMessage(h.Write, op.Attrs[name].proto(name)); err != nil {
				return [sha256.Size]byte{}, fmt.Errorf("%s: attribute %s: %w", op.Label(), name, err)
			}
		}
		if op.proto != nil {
			if err := writeMessage(h.Write, op.proto); err != nil {
				return [sha256.Size]byte{}, fmt.Errorf("%s: %w", op.Label(), err)
			}
		}
		for _, out := range op.Out {
			fmt.Fprintf(h, " %q %v%v", out.v.name, out.v.dtype, out.v.shape)
		}
		if op.data != nil {
			w := writer{names: map[*value]string{op.Out[0].v: "constant"}}
			if err := writeMessage(h.Write, w.initializer(op)); err != nil {
				return [sha256.Size]byte{}, fmt.Errorf("%s: %w", op.Label(), err)
			}
		}
		fmt.Fprintln(h)
	}
	for _, o := range outputs {
		fmt.Fprintf(h, "%q", o.Name)
		read([]Node{o.Node})
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// writeMessage writes a message with its length, so that neighbours cannot run into each other.
func writeMessage(to func([]byte) (int, error), m proto.Message) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil {
		_, err = to(fmt.Appendf(nil, " %d:", len(b)))
	}
	if err == nil {
		_, err = to(b)
	}
	return err
}
