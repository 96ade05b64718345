package secagg

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"
)

// degreeTest finds that commitments to shares are not those of one polynomial, of as many coefficients as shares are
// needed, whose value at 0 is the committed secret: their product with a random word of the dual code is not neutral
// then, but with a probability of 2^-252 (Cascudo and David, SCRAPE: Scalable Randomness Attested by Public Entities,
// ACNS 2017, sections 2.1 and 4). So any threshold of shares that fit their commitments give the secret.
type degreeTest struct {
	threshold int
	ids       []int
	places    []group.Scalar // of the secret, then of the clients
	weights   []group.Scalar // the inverse of the product of a place's differences to the others
}

func newDegreeTest(threshold int, ids []int) degreeTest {
	d := degreeTest{threshold: threshold, ids: ids, places: []group.Scalar{field.NewScalar()}}
	for _, id := range ids {
		d.places = append(d.places, place(id))
	}
	difference := field.NewScalar()
	for i, x := range d.places {
		w := field.NewScalar().SetUint64(1)
		for j, y := range d.places {
			if j != i {
				w.Mul(w, difference.Sub(x, y))
			}
		}
		d.weights = append(d.weights, w.Inv(w))
	}
	return d
}

// check looks at the commitments of a dealer's letters to the shares of one of its two secrets.
func (d degreeTest) check(secret []byte, of int, letters Letters) error {
	coefficients := make([]group.Scalar, len(d.ids)-d.threshold+1)
	for i := range coefficients {
		coefficients[i] = field.RandomScalar(rand.Reader)
	}
	word := polynomial.New(coefficients)
	sum, factor := field.Identity(), field.NewScalar()
	for i, x := range d.places {
		b := secret
		if i > 0 {
			points := letters[d.ids[i-1]].Points
			b = points[of*keySize : (of+1)*keySize]
		}
		e, err := decodePoint(b)
		if err != nil {
			return fmt.Errorf("a commitment: %w", err)
		}
		sum.Add(sum, e.Mul(e, factor.Mul(word.Evaluate(x), d.weights[i])))
	}
	if !sum.IsIdentity() {
		return errors.New("its commitments are not those of shares of its secrets")
	}
	return nil
}
