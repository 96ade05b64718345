package graph

import (
	"crypto/sha256"

	"promptfed/runtime/onnx"
)

// Signature identifies what outputs compute, placeholders and gradient stops included: graphs with equal signatures
// become equal models, with equal gradients. The content of constants enters, with the place of those in files, and the
// operator set; the order in which unused operators were made does not.
func Signature(outputs ...Output) (sum [sha256.Size]byte, err error) {
	m, err := model(&writer{order: map[*Op]int{}}, outputs)
	if err != nil {
		return sum, err
	}

	b, err := onnx.Marshal(m)
	if err != nil {
		return sum, err
	}

	return sha256.Sum256(b), nil
}
