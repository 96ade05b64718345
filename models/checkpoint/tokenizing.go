package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/models/tokenizer"
)

// Texts is what OpenCLIP does to texts around the tokenizer of a model.
type Texts struct {
	tokenizer.Treatment
	// Transformers tells that the tokenizer is transformers', which does what its file describes after the cleaning.
	Transformers bool
}

// On gives a tokenizer its treatment. The file of CLIP's tokenizer puts letters in lower case, and transformers does
// so; OpenCLIP's SimpleTokenizer leaves capitals where it is to clean white space alone. Only the Greek sigma that ends
// a word is another letter in transformers' lower case.
func (x Texts) On(t *tokenizer.Tokenizer) (*tokenizer.Tokenizer, error) {
	if x.Transformers && t.CLIP() && x.Clean == tokenizer.Whitespace {
		x.Clean = ""
	}
	return t.With(x.Treatment)
}

// harmless lists options of HFTokenizer and of SimpleTokenizer that change no ids of texts that fit the context, with
// the values (as JSON) under which they do not; nil stands for every value. tools/golden/openclip_tokens.py compares.
var harmless = map[bool]map[string][]string{
	true: {"language": {"null"}, "use_fast": {"null", "true"}, "padding_side": {`"right"`}, "truncation_side": nil,
		"model_max_length": nil, "clean_up_tokenization_spaces": nil},
	false: {"additional_special_tokens": {"null", "[]"}, "reduction_mask": {"null", `""`, `"simple"`, `"random"`,
		`"shuffle"`}},
}

// TextsOf is what OpenCLIP's configuration, the whole of it or the model_cfg alone, says of texts; nothing where the
// data is no such configuration. Errors begin at text_cfg.
func TextsOf(data []byte) (Texts, error) {
	cfg, err := parseJSON(data)
	if err != nil {
		return Texts{}, nil
	}
	if model := section(cfg, "model_cfg"); model != nil {
		cfg = model
	}
	return openCLIPTreatment("", section(cfg, "text_cfg"))
}

// openCLIPTreatment reads hf_tokenizer_name, tokenizer_mode and tokenizer_kwargs of a text_cfg, which is in where, as
// get_tokenizer of OpenCLIP 3.3.0 does for a folder. With a name the tokenizer is an HFTokenizer, which cleans white
// space unless it is told otherwise. Without one it is a SimpleTokenizer, which cleans as CLIP's own tokenizer does.
func openCLIPTreatment(where string, text map[string]any) (x Texts, err error) {
	where += "text_cfg."
	name, err := setting(text, "hf_tokenizer_name", "")
	if err != nil {
		return x, fmt.Errorf("%s%w", where, err)
	}
	if x.Transformers = name != ""; x.Transformers {
		x.Clean = tokenizer.Whitespace
	}
	if mode := text["tokenizer_mode"]; mode != nil && mode != "" {
		return x, fmt.Errorf("%stokenizer_mode %s is not supported: null is the mode that puts texts between the "+
			"tokens of the tokenizer's own file", where, asJSON(mode))
	}
	options, ok := text["tokenizer_kwargs"].(map[string]any)
	if v := text["tokenizer_kwargs"]; v != nil && !ok {
		return x, fmt.Errorf("%stokenizer_kwargs is %s, want an object", where, asJSON(v))
	}
	for _, key := range keys(options) {
		v := options[key]
		values, known := harmless[x.Transformers][key]
		switch {
		case key == "clean":
			if x.Clean, ok = v.(string); !ok || x.Clean == "" || x.Check() != nil {
				return x, fmt.Errorf("%stokenizer_kwargs.clean is %s, want %q, %q or %q", where, asJSON(v),
					tokenizer.Lower, tokenizer.Whitespace, tokenizer.Canonicalize)
			}
		case key == "strip_sep_token" && x.Transformers:
			if x.StripSep, ok = v.(bool); !ok && v != nil {
				return x, fmt.Errorf("%stokenizer_kwargs.strip_sep_token is %s, want true or false", where, asJSON(v))
			}
		case !known || values != nil && !slices.Contains(values, asJSON(v)):
			return x, fmt.Errorf("%stokenizer_kwargs.%s = %s is not supported: remove it if the ids of texts are the "+
				"same without it", where, oneLine(key), asJSON(v))
		}
	}
	if pool := text["pool_type"]; x.StripSep && (pool != "last" && pool != "first" || text["hf_model_name"] != nil) {
		return x, fmt.Errorf("%stokenizer_kwargs.strip_sep_token is supported for OpenCLIP's own text tower with "+
			"pool_type first or last, not for one that looks for the end of a text: set it to false if texts keep "+
			"their separator", where)
	}
	return x, nil
}

// asJSON is a value of a configuration as an error shows it.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return oneLine(fmt.Sprint(v))
	}
	return oneLine(string(b))
}
