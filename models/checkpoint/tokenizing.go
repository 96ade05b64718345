package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/models/tokenizer"
	"promptfed/runtime/oneline"
)

// Texts describes OpenCLIP's treatment of texts before and after the tokenizer of a model.
type Texts struct {
	tokenizer.TextCleaning
	// Transformers means that the tokenizer is transformers', which applies the steps of its file after the cleaning.
	Transformers bool
}

// Apply returns a tokenizer with the treatment. The file of CLIP's tokenizer converts to lower case, and so does
// transformers; OpenCLIP's SimpleTokenizer keeps capitals if it cleans only white space. The only letter that differs
// in transformers' lower case is the Greek sigma at the end of a word.
func (x Texts) Apply(t *tokenizer.Tokenizer) (*tokenizer.Tokenizer, error) {
	if x.Transformers && t.CLIP() && x.Clean == tokenizer.Whitespace {
		x.Clean = ""
	}
	return t.WithCleaning(x.TextCleaning)
}

// harmless lists options of HFTokenizer and of SimpleTokenizer that do not change the ids of texts that fit the
// context, with the values (as JSON) for which this holds; nil means every value. tools/golden/openclip_tokens.py
// compares.
var harmless = map[bool]map[string][]string{
	true: {"language": {"null"}, "use_fast": {"null", "true"}, "padding_side": {`"right"`}, "truncation_side": nil,
		"model_max_length": nil, "clean_up_tokenization_spaces": nil},
	false: {"additional_special_tokens": {"null", "[]"}, "reduction_mask": {"null", `""`, `"simple"`, `"random"`,
		`"shuffle"`}},
}

// ParseTexts returns the treatment of texts in an OpenCLIP configuration, complete or only the model_cfg; it is empty
// if the data is no such configuration. Errors begin at text_cfg.
func ParseTexts(data []byte) (Texts, error) {
	cfg, err := parseJSON(data)
	if err != nil {
		return Texts{}, nil
	}

	return openCLIPTreatment("", section(openclipModel(cfg), "text_cfg"))
}

// openCLIPTreatment reads hf_tokenizer_name, tokenizer_mode and tokenizer_kwargs of the text_cfg in where, as
// get_tokenizer of OpenCLIP 3.3.0 does for a folder. With a name, the tokenizer is an HFTokenizer, which cleans white
// space by default. Without a name, it is a SimpleTokenizer, which cleans like CLIP's own tokenizer.
func openCLIPTreatment(where string, text map[string]any) (texts Texts, err error) {
	where += "text_cfg."
	name, err := setting(text, "hf_tokenizer_name", "")
	if err != nil {
		return texts, fmt.Errorf("%s%w", where, err)
	}

	if texts.Transformers = name != ""; texts.Transformers {
		texts.Clean = tokenizer.Whitespace
	}

	if mode := text["tokenizer_mode"]; mode != nil && mode != "" {
		return texts, fmt.Errorf("%stokenizer_mode %s is not supported: null is the mode that puts texts between the "+
			"tokens of the tokenizer's own file", where, asJSON(mode))
	}

	options, ok := text["tokenizer_kwargs"].(map[string]any)
	if v := text["tokenizer_kwargs"]; v != nil && !ok {
		return texts, fmt.Errorf("%stokenizer_kwargs is %s, want an object", where, asJSON(v))
	}

	for _, key := range keys(options) {
		value := options[key]
		values, known := harmless[texts.Transformers][key]
		switch {
		case key == "clean":
			if texts.Clean, ok = value.(string); !ok || texts.Clean == "" || texts.Check() != nil {
				return texts, fmt.Errorf("%stokenizer_kwargs.clean is %s, want %q, %q or %q", where, asJSON(value),
					tokenizer.Lower, tokenizer.Whitespace, tokenizer.Canonicalize)
			}
		case key == "strip_sep_token" && texts.Transformers:
			if texts.StripSep, ok = value.(bool); !ok && value != nil {
				return texts, fmt.Errorf("%stokenizer_kwargs.strip_sep_token is %s, want true or false", where,
					asJSON(value))
			}
		case !known || values != nil && !slices.Contains(values, asJSON(value)):
			return texts, fmt.Errorf("%stokenizer_kwargs.%s = %s is not supported: remove it if the ids of texts are "+
				"the same without it", where, oneline.Short(key), asJSON(value))
		}
	}

	if pool := text["pool_type"]; texts.StripSep && (pool != "last" && pool != "first" ||
		text["hf_model_name"] != nil) {
		return texts, fmt.Errorf("%stokenizer_kwargs.strip_sep_token is supported for OpenCLIP's own text tower with "+
			"pool_type first or last, not for one that looks for the end of a text: set it to false if texts keep "+
			"their separator", where)
	}

	return texts, nil
}

// asJSON formats a value of a configuration for an error.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return oneline.Short(fmt.Sprint(v))
	}
	return oneline.Short(string(b))
}
