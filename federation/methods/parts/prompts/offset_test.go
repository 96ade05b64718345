package prompts_test

import (
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/goldentest"
)

// An offset from words is no prompt: Param refuses it, and Full adds the words, for every caller.
func TestOffsetNeedsItsWords(t *testing.T) {
	task := method.ClientSpec{Classes: 2, Width: 8, TextLayers: 1}
	c := prompts.OffsetContext{Tokens: 4, Words: prompts.PhotoPrompt}
	params := c.Declare(task, "ctx", method.Shared)
	s := method.NewScope(task, params)
	full := c.Full(s, "ctx")
	if full != prompts.FullPrompt(s, params[0]) || full == s.TrainedValue("ctx") || s.Graph().Err() != nil {
		t.Errorf("the prompt is not the words and the offset: %v", s.Graph().Err())
	}
	s.Param("ctx")
	goldentest.WantErrorOf(t, "an offset", s.Graph().Err(), "\"ctx\" is an offset from the words", "OffsetContext",
		"Scope.TrainedValue")
	c.Words = ""
	s = method.NewScope(task, c.Declare(task, "ctx", method.Shared))
	if c.Full(s, "ctx") != s.Param("ctx") || s.Graph().Err() != nil {
		t.Errorf("without words the parameter is the prompt: %v", s.Graph().Err())
	}
}
