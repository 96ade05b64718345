package grad

import "promptfed/runtime/graph"

// rules is the one table. Key: the operator's kind, with its domain in front unless it is ONNX's own.
var rules map[string]Rule

func init() {
	rules = map[string]Rule{
		"Identity": func(c *Call) []node { return only(c.G()) },
		"Dropout":  ruleDropout,
		"Cast":     castBack, "CastLike": func(c *Call) []node { c.need[len(c.need)-1] = false; return castBack(c) },
		"Floor": flat, "Ceil": flat, "Round": flat, "Sign": flat,

		"Add": func(c *Call) []node { return []node{c.G(), c.G()} },
		"Sub": ruleSub, "Mul": ruleMul, "Div": ruleDiv, "Pow": rulePow,
		"Max": ruleExtreme, "Min": ruleExtreme, "Sum": ruleSum, "Mean": ruleMean,
		"Where": ruleWhere, "Clip": ruleClip,

		"Neg":        func(c *Call) []node { return only(c.G().Neg()) },
		"Sqrt":       func(c *Call) []node { return only(c.G().Div(c.Y()).Scale(0.5)) },
		"Exp":        func(c *Call) []node { return only(c.G().Mul(c.Y())) },
		"Log":        func(c *Call) []node { return only(c.G().Div(c.X(0))) },
		"Reciprocal": func(c *Call) []node { return only(c.G().Mul(c.Y().Square()).Neg()) },
		"Abs":        func(c *Call) []node { return only(c.G().Mul(unary(c.X(0), "Sign"))) },
		"Sin":        func(c *Call) []node { return only(c.G().Mul(unary(c.X(0), "Cos"))) },
		"Cos":        func(c *Call) []node { return only(c.G().Mul(unary(c.X(0), "Sin")).Neg()) },
		"Erf":        ruleErf,
		"Tanh":       func(c *Call) []node { return only(c.G().Sub(c.G().Mul(c.Y().Square()))) },
		"Sigmoid":    func(c *Call) []node { return only(c.G().Mul(c.Y().Sub(c.Y().Square()))) },
		"Softplus":   func(c *Call) []node { return only(c.G().Mul(c.X(0).Sigmoid())) },
		"Relu":       func(c *Call) []node { return only(c.G().Mul(positive(c.Y()))) },
		"LeakyRelu":  ruleLeakyRelu, "PRelu": rulePRelu, "Elu": ruleElu,
		"HardSigmoid": ruleHardSigmoid, "HardSwish": ruleHardSwish, "Gelu": ruleGelu,

		"MatMul": ruleMatMul, "Gemm": ruleGemm, graph.Microsoft + ".FusedMatMul": ruleMatMul,
		"Einsum": ruleEinsum,
		"Conv":   ruleConv, "ConvTranspose": ruleConvTranspose,
		"AveragePool": ruleAveragePool, "GlobalAveragePool": ruleGlobalAveragePool, "MaxPool": ruleMaxPool,

		"Reshape": reshapeBack, "Flatten": reshapeBack, "Squeeze": reshapeBack, "Unsqueeze": reshapeBack,
		"Transpose": ruleTranspose, "Expand": func(c *Call) []node { return only(c.G()) }, "Tile": ruleTile,
		"Concat": ruleConcat, "Split": ruleSplit, "Slice": ruleSlice, "Pad": rulePad,
		"Gather": ruleGather, "GatherND": ruleGatherND, "GatherElements": ruleGatherElements,
		"ScatterND": ruleScatterND, "ScatterElements": ruleScatterElements, "Trilu": ruleTrilu, "CumSum": ruleCumSum,

		"ReduceSum": ruleReduceSum, "ReduceMean": ruleReduceMean, "ReduceMax": ruleReduceExtreme,
		"ReduceMin": ruleReduceExtreme, "ReduceL2": ruleReduceL2, "ReduceSumSquare": ruleReduceSumSquare,
		"ReduceLogSumExp": ruleReduceLogSumExp, "ReduceL1": ruleReduceL1,

		"Softmax": ruleSoftmax, "LogSoftmax": ruleLogSoftmax,
		"LayerNormalization": ruleLayerNorm, "BatchNormalization": ruleBatchNorm,

		graph.Microsoft + ".QuickGelu": ruleQuickGelu,
		graph.Microsoft + ".Gelu":      ruleGelu,

		"Resize": ruleResize, "TopK": ruleTopK, "ReduceProd": ruleReduceProd, "ReduceLogSum": ruleReduceLogSum,
		"Mod": ruleMod, "ReverseSequence": ruleReverse,

		"Tan":   func(c *Call) []node { return only(c.G().Mul(c.Y().Square().Shift(1))) },
		"Sinh":  func(c *Call) []node { return only(c.G().Mul(unary(c.X(0), "Cosh"))) },
		"Cosh":  func(c *Call) []node { return only(c.G().Mul(unary(c.X(0), "Sinh"))) },
		"Asin":  func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Neg().Shift(1).Sqrt())) },
		"Acos":  func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Neg().Shift(1).Sqrt()).Neg()) },
		"Atan":  func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Shift(1))) },
		"Asinh": func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Shift(1).Sqrt())) },
		"Acosh": func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Shift(-1).Sqrt())) },
		"Atanh": func(c *Call) []node { return only(c.G().Div(c.X(0).Square().Neg().Shift(1))) },
		"ThresholdedRelu": func(c *Call) []node {
			return only(c.G().Mul(positive(c.X(0).Shift(-float64(c.Op.Attrs.Float("alpha", 1))))))
		},
		"Selu": lowered(writeSelu), "Celu": lowered(writeCelu), "Mish": lowered(writeMish),
		"Swish": lowered(writeSwish), "Softsign": lowered(writeSoftsign),

		"InstanceNormalization": lowered(writeInstanceNorm), "GroupNormalization": lowered(writeGroupNorm),
		"RMSNormalization": lowered(writeRMSNorm), "SimplifiedLayerNormalization": lowered(writeRMSNorm),
		"LpNormalization": lowered(writeLpNorm), "MeanVarianceNormalization": lowered(writeMeanVariance),
		"LpPool": lowered(writeLpPool), "GlobalMaxPool": lowered(writeGlobalMaxPool),
		"DepthToSpace": lowered(writeDepthToSpace), "SpaceToDepth": lowered(writeSpaceToDepth),
		"Attention": lowered(writeAttention), graph.Microsoft + ".MultiHeadAttention": lowered(writeMultiHead),
		graph.Microsoft + ".SkipLayerNormalization": lowered(writeSkipNorm), graph.Microsoft +
			".FastGelu": lowered(writeFastGelu),
		graph.Microsoft + ".BiasGelu": lowered(writeBiasGelu),
	}
}

func unary(x node, kind string) node { return x.Graph().Apply(graph.Standard, kind, nil, x) }

func positive(x node) node { return x.Greater(x.ScalarLike(0)).Cast(x.DType()) }
