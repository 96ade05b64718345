package experiment

import (
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
)

// layout says how the token ids of a trace become sequences.
const layout = "a class is the sequence [sos, prompt, tokens], read at its last position, the end of text; of " +
	"a prompt [classes,tokens,width] each class has its own; " +
	"hand_tokens, name_tokens (bare names) and template_tokens are whole sequences [sos, ..., eot]; " +
	"text and image features are divided by their Euclidean norm, scores are logit_scale times their cosine"

// Trace describes the run for trace.json; features must have been computed.
func (b *Built) Trace(config any) (trace.Info, error) {
	info := trace.Info{Config: config, Classes: b.Set.Classes, Layout: layout}
	for _, f := range b.Bundles {
		tok, err := f.Tokenizer()
		if err != nil {
			return info, err
		}
		t := trace.Bundle{Name: f.Name, Digest: f.Digest(), Folder: f.WeightsDir(), LogitScale: f.LogitScale,
			SOS: tok.SOS(), EOT: tok.EOT(), Context: f.Text.Context}
		if t.Tokens, err = f.ClassTokens(b.Set.Classes); err != nil {
			return info, err
		}
		whole := func(template string) (out [][]int, err error) {
			for _, c := range b.Set.Classes {
				ids, err := tok.Encode(spec.Sentence(template, c))
				if err != nil {
					return nil, err
				}
				out = append(out, append(append([]int{tok.SOS()}, ids...), tok.EOT()))
			}
			return out, nil
		}
		if t.HandTokens, err = whole(b.Config.Data.Template); err != nil {
			return info, err
		}
		if t.NameTokens, err = whole("{}"); err != nil {
			return info, err
		}
		for _, template := range b.Engine.Templates(b.Engine.Clients[0].Backbone) {
			if template == "{}" {
				continue
			}
			if t.TemplateTokens == nil {
				t.TemplateTokens = map[string][][]int{}
			}
			if t.TemplateTokens[template], err = whole(template); err != nil {
				return info, err
			}
		}
		info.Bundles = append(info.Bundles, t)
	}
	first := info.Bundles[0]
	info.Tokens, info.HandTokens, info.NameTokens, info.TemplateTokens = first.Tokens, first.HandTokens,
		first.NameTokens, first.TemplateTokens
	info.Clients = trace.ClientInfos(b.Engine)
	return info, nil
}
