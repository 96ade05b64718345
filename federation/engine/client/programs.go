package client

import (
	"promptfed/federation/method"
	"promptfed/runtime/onnx"
)

// Programs gets each graph that a worker compiles, and returns the graph to compile in its place. With Programs a
// worker builds graphs of ONNX's operators alone, and a step as one graph. It is safe for concurrent use.
type Programs interface {
	Program(Program, *onnx.ModelProto) (*onnx.ModelProto, error)
}

// Program describes a graph.
type Program struct {
	Kind     Kind
	Backbone string // empty on the server
	Weights  string // folder of the files that the graph's weights are in; empty for none
	Inputs   []method.Input
	// Gradients has by the name of an output the input whose gradient it is.
	Gradients map[string]method.Input
}

// Kind says what a graph computes.
type Kind string

const (
	EncoderProgram Kind = "encoder" // features of images, from pixels
	StepProgram    Kind = "step"    // loss and gradients of a training step
	TermsProgram   Kind = "terms"   // terms of the loss, with their gradients
	ScoresProgram  Kind = "scores"  // class scores of images
	ValueProgram   Kind = "value"   // a value that the method computes over a client's data
	FixedProgram   Kind = "fixed"   // parts of class scores or values that depend on no image
	TextsProgram   Kind = "texts"   // features of hand-written texts
	ServerProgram  Kind = "server"  // what the server computes
)
