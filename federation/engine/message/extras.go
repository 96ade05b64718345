package message

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Extras are the tensors that a reply to an instruction may have beside shared parameters, as the method declares them;
// ok is false for an instruction that is none of the method's.
func (o Instruction) Extras(of method.Method, task method.Task) (declared []method.Extra, ok bool) {
	if o.Kind == Train {
		return of.Extras(task), true
	}
	if q, ok := o.StatisticOf(of); ok {
		return q.Answer(task), true
	}
	return nil, false
}

// StatisticOf is what an instruction asks; ok is false where the method has no statistic of that name.
func (o Instruction) StatisticOf(of method.Method) (method.Statistic, bool) {
	all := slices.Concat(of.Statistics(o.Round), of.Statistics(0))
	i := slices.IndexFunc(all, func(q method.Statistic) bool { return q.Name == o.Statistic })
	if o.Kind != Compute || i < 0 {
		return method.Statistic{}, false
	}
	return all[i], true
}

// CheckTerms refuses measurements of terms that the method's loss does not have.
func (t *LossTerms) CheckTerms(of method.Method, task method.Task) error {
	if t == nil {
		return nil
	}
	s := method.NewScope(task, of.Params(task))
	terms, err := s.Terms(of.Loss(s, of.Logits(s)))
	if err != nil {
		return err
	}
	for _, m := range t.Terms {
		if m.Name != Correction && !slices.ContainsFunc(terms, func(d method.Term) bool { return d.Name == m.Name }) {
			return fmt.Errorf("the upload reports the loss term %.100q, which the method's loss does not have", m.Name)
		}
	}
	return nil
}

// CheckExtras refuses tensors that are not exactly those that a method declares, values that are not finite, and counts
// of more examples than the client has.
func CheckExtras(want []method.Extra, got tensor.Map, examples int) error {
	declared := map[string]bool{}
	for _, w := range want {
		declared[w.Name] = true
		t := got[w.Name]
		if t == nil || t.IsInt() || !fits(t.Shape, w.Shape) {
			return fmt.Errorf("the upload has %v for %s, which must be float32%v; the client runs another experiment",
				t, w.Name, w.Shape)
		}
		if !w.Counts {
			continue
		}
		sum := 0.0
		for _, v := range t.Data {
			if !(v >= 0) || float64(v) != math.Trunc(float64(v)) {
				return fmt.Errorf("the upload counts %v examples of a class in %s; a count is a whole number of at "+
					"least 0", v, w.Name)
			}
			sum += float64(v)
		}
		if !(sum <= float64(examples)) {
			return fmt.Errorf("the upload counts %.10g examples in %s; the client has %d", sum, w.Name, examples)
		}
	}
	for _, name := range got.Names() {
		if !declared[name] {
			return fmt.Errorf("the upload has the extra tensor %.100q, which the method does not have", name)
		}
	}
	return nil
}

// fits tells whether a shape is the declared one, in which -1 is any size.
func fits(shape, declared []int) bool {
	return slices.EqualFunc(shape, declared, func(n, want int) bool { return want < 0 || n == want })
}
