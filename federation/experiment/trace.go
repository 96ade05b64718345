package experiment

import (
	"fmt"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/runtime/tensor"
)

// layout describes how the token ids of a trace form sequences.
const layout = "a class is the sequence [sos, prompt, tokens], an sos of -1 being no token: the sequence begins at " +
	"the prompt; of a prompt [classes,tokens,width] each class has its own; a parameter with words is what is added " +
	"to their embeddings; hand_tokens, name_tokens (bare names) and template_tokens are whole sequences " +
	"[sos, ..., eot]; a sequence is read at its last position, the end of text, or as text.pool of the bundle says; " +
	"text and image features are divided by their Euclidean norm, scores are logit_scale times their cosine"

// Trace returns the description of the run for trace.json.
func (f *Federation) Trace(config any) (trace.Info, error) {
	experiment := f.Experiment
	info := trace.Info{Config: config, Classes: experiment.Classes, Layout: layout,
		Clients: trace.ClientInfos(experiment), Words: tensor.Map{}}
	for i, model := range f.Task.Backbones.Distinct {
		tok, err := model.Tokenizer()
		if err != nil {
			return info, err
		}

		bundle := trace.Bundle{Name: model.Name, Digest: model.Digest(), Folder: model.WeightsDir(),
			LogitScale: model.LogitScale, LogitBias: model.LogitBias, Sigmoid: model.Sigmoid, SOS: tok.SOS(),
			EOT: tok.EOT(), Context: model.Text.Context, Text: model.Text,
			TemplateTokens: map[string][][]int{}, Words: map[string][]int{}}

		if bundle.Tokens, err = model.ClassTokens(experiment.Classes); err != nil {
			return info, err
		}

		whole := func(template string) (out [][]int, err error) {
			for _, c := range experiment.Classes {
				ids, err := tok.Encode(spec.Sentence(template, c))
				if err != nil {
					return nil, err
				}
				if sos := tok.SOS(); sos >= 0 {
					ids = slices.Insert(ids, 0, sos)
				}
				out = append(out, append(ids, tok.EOT()))
			}
			return out, nil
		}

		if bundle.HandTokens, err = whole(experiment.Template); err != nil {
			return info, err
		}

		if bundle.NameTokens, err = whole("{}"); err != nil {
			return info, err
		}

		for _, template := range experiment.Templates(experiment.Clients[0].Backbone) {
			if template == "{}" {
				continue
			}
			if bundle.TemplateTokens[template], err = whole(template); err != nil {
				return info, err
			}
		}

		for _, text := range info.Texts() {
			if bundle.Words[text], err = tok.Encode(text); err != nil {
				return info, err
			}
			if info.Words[fmt.Sprint(i, "/", text)], err = model.Words(text); err != nil {
				return info, err
			}
		}

		info.Bundles = append(info.Bundles, bundle)
	}

	first := info.Bundles[0]
	info.Tokens, info.HandTokens, info.NameTokens, info.TemplateTokens = first.Tokens, first.HandTokens,
		first.NameTokens, first.TemplateTokens
	return info, nil
}
