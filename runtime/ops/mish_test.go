package ops_test

func init() {
	shapes(shapeCase{"Mish", nil, []any{"S,3"}, "[S,3]"})
	gradients(batchCase("Mish", nil))
	witnesses(witness{"mish.json", "Mish", nil, []string{"x"}})
}
