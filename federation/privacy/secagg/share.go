package secagg

import (
	"errors"
	"fmt"
	"io"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"
	"github.com/cloudflare/circl/secretsharing"

	"promptfed/runtime/convert"
)

// place returns the point at which a client's share evaluates the polynomial; the secret is at 0.
func place(id int) group.Scalar { return field.NewScalar().SetUint64(uint64(id) + 1) }

// split returns one share for each client. Any t shares determine the secret, fewer reveal nothing.
func (x secret) split(random io.Reader, t int, clients []int) map[int]secret {
	s := secretsharing.New(random, uint(t-1), x.Scalar)
	out := map[int]secret{}
	for _, id := range clients {
		out[id] = secret{s.ShareWithID(place(id)).Value}
	}
	return out
}

// reconstruction computes secrets from the shares of certain clients. The weights depend only on the clients, so they
// are computed once for all secrets.
type reconstruction struct {
	clients []int
	weights []group.Scalar
}

func newReconstruction(clients []int) reconstruction {
	basis := reconstruction{clients: clients}
	nodes, zero := convert.Slice(clients, place), field.NewScalar()
	for i := range nodes {
		basis.weights = append(basis.weights, polynomial.LagrangeBase(uint(i), nodes, zero))
	}

	return basis
}

func (j reconstruction) secret(shares func(client int) []byte) (secret, error) {
	sum, term := field.NewScalar(), field.NewScalar()
	for i, id := range j.clients {
		v, err := scalar(shares(id))
		if err != nil {
			return secret{}, fmt.Errorf("the share of client %d: %w", id, err)
		}
		sum.Add(sum, term.Mul(v, j.weights[i]))
	}

	return secret{sum}, nil
}

// scalar decodes a share.
func scalar(b []byte) (group.Scalar, error) {
	v := field.NewScalar()
	if len(b) != secretSize {
		return nil, fmt.Errorf("%d bytes; it must have %d", len(b), secretSize)
	}

	if err := v.UnmarshalBinary(b); err != nil {
		return nil, errors.New("it is not an element of the field")
	}

	return v, nil
}
