package secagg

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"

	"promptfed/runtime/convert"
)

// degreeTest verifies that commitments to shares belong to one polynomial whose number of coefficients is the threshold
// and whose value at 0 is the committed secret. It multiplies the commitments with a random codeword of the dual code:
// wrong commitments pass with a probability of 2^-252 (Cascudo and David, SCRAPE: Scalable Randomness Attested by
// Public Entities, ACNS 2017, sections 2.1 and 4). Any threshold of shares that fit their commitments therefore
// determine the secret.
type degreeTest struct {
	threshold int
	ids       []int
	places    []group.Scalar // points of the secret and of the clients, in this order
	weights   []group.Scalar // for each point, the inverse of the product of its differences to the others
}

func newDegreeTest(threshold int, ids []int) degreeTest {
	test := degreeTest{threshold: threshold, ids: ids,
		places: append([]group.Scalar{field.NewScalar()}, convert.Slice(ids, place)...)}

	difference := field.NewScalar()
	for i, x := range test.places {
		w := field.NewScalar().SetUint64(1)
		for j, y := range test.places {
			if j != i {
				w.Mul(w, difference.Sub(x, y))
			}
		}
		test.weights = append(test.weights, w.Inv(w))
	}

	return test
}

// check tests a dealer's commitments to the shares of one of its two secrets, given by of: ofPair or ofSeed.
func (d degreeTest) check(secret []byte, which int, shares EncryptedShares) error {
	coefficients := make([]group.Scalar, len(d.ids)-d.threshold+1)
	for i := range coefficients {
		coefficients[i] = field.RandomScalar(rand.Reader)
	}

	word := polynomial.New(coefficients)
	sum, factor := field.Identity(), field.NewScalar()
	for i, x := range d.places {
		b := secret
		if i > 0 {
			commitments := shares[d.ids[i-1]].Commitments
			b = commitments[which*keySize : (which+1)*keySize]
		}
		e, err := decodePoint(b)
		if err != nil {
			return fmt.Errorf("a commitment: %w", err)
		}
		sum.Add(sum, e.Mul(e, factor.Mul(word.Evaluate(x), d.weights[i])))
	}

	if !sum.IsIdentity() {
		return errors.New("its commitments do not belong to shares of its secrets")
	}

	return nil
}
