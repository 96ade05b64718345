package message

import (
	"errors"
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// halfCodec is a codec whose uploads hold half of each number.
type halfCodec struct{}

func (halfCodec) Pack(*method.Local, *method.Upload) error { return errors.New("not here") }

func (halfCodec) Packed(tensor.Map) tensor.Specs { return tensor.Specs{{Name: "p", Shape: []int{}}} }

func (halfCodec) Unpack(_, packed tensor.Map) (tensor.Map, error) {
	if packed["p"] == nil {
		return nil, errors.New("there is no p")
	}
	return tensor.Map{"p": tensor.Scalar(2 * packed["p"].Data[0])}, nil
}

// Uploaded parameters are compressed if the instruction has a codec, and only then. Statistics are never compressed.
func TestReadsUploads(t *testing.T) {
	plain, packed := tensor.Map{"shared/p": tensor.Scalar(3)}, tensor.Map{"packed/p": tensor.Scalar(3)}
	for _, c := range []struct {
		o    Instruction
		m    tensor.Map
		want float32
		says string
	}{
		{Instruction{Kind: Train}, plain, 3, ""},
		{Instruction{Kind: Train}, packed, 0, "outside of [shared extra statistics]"},
		{Instruction{Kind: Train, Codec: halfCodec{}}, packed, 6, ""},
		{Instruction{Kind: Train, Codec: halfCodec{}}, plain, 0, "outside of [packed extra statistics]"},
		{Instruction{Kind: Train, Codec: halfCodec{}}, tensor.Map{}, 0, "the compressed upload: there is no p"},
		{Instruction{Kind: Train, Codec: halfCodec{}}, tensor.Map{"packed/p": tensor.Scalar(float32(math.Inf(1)))}, 0,
			"compressed upload"},
		{Instruction{Kind: Compute, Codec: halfCodec{}}, plain, 3, ""},
		{Instruction{Kind: Compute, Codec: halfCodec{}}, packed, 0, "outside of [shared extra statistics]"},
	} {
		got, err := c.o.WithReplyTensors(Reply{}, c.m)
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v of %v: %v, want %q", c.o, c.m.Names(), err, c.says)
		case c.says == "" && (err != nil || got.Upload.Shared["p"].Data[0] != c.want):
			t.Errorf("%+v of %v: %v, %v", c.o, c.m.Names(), got.Upload.Shared, err)
		}
	}
}
