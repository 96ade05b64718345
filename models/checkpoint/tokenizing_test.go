package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"

	"promptfed/models/tokenizer"
	"promptfed/runtime/goldentest"
)

// The text_cfg of OpenCLIP's own configurations, one of each kind, with the class, the cleaning and the stripping that
// its get_tokenizer selects (tools/golden/openclip_tokens.py). CLIP's own cleaning is Lower.
func TestOpenCLIPConfigurations(t *testing.T) {
	var cases []struct {
		Name        string
		TextCfg     json.RawMessage `json:"text_cfg"`
		HuggingFace bool
		Clean       string
		Strip       bool
	}
	goldentest.ReadJSON(t, "testdata/tokenizing.json", &cases)
	if len(cases) < 8 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		want := Texts{Transformers: c.HuggingFace, TextCleaning: tokenizer.TextCleaning{Clean: c.Clean,
			StripSep: c.Strip}}
		if !c.HuggingFace && want.Clean == tokenizer.Lower {
			want.Clean = ""
		}
		got, err := ParseTexts([]byte(`{"model_cfg":{"text_cfg":` + string(c.TextCfg) + "}}"))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", c.Name, got, err, want)
		}
	}
}

// Every option is read, has no effect, or is refused in one line that names it.
func TestTokenizerOptions(t *testing.T) {
	const hf = `{"hf_tokenizer_name":"x","pool_type":"last","tokenizer_kwargs":`
	texts := func(transformers bool, clean string, strip bool) *Texts {
		return &Texts{tokenizer.TextCleaning{Clean: clean, StripSep: strip}, transformers}
	}
	for _, c := range []struct {
		text string
		want any // the result, or a part of the error
	}{
		{`{}`, texts(false, "", false)},
		{`{"hf_tokenizer_name":null,"tokenizer_mode":null,"tokenizer_kwargs":null}`, texts(false, "", false)},
		{`{"hf_tokenizer_name":"","tokenizer_mode":"","tokenizer_kwargs":{}}`, texts(false, "", false)},
		{`{"tokenizer_kwargs":{"clean":"lower","reduction_mask":"random","additional_special_tokens":[]}}`,
			texts(false, "lower", false)},
		{`{"tokenizer_kwargs":{"clean":"whitespace"}}`, texts(false, "whitespace", false)},
		{hf + `{}}`, texts(true, "whitespace", false)},
		{hf + `{"clean":"lower","strip_sep_token":null}}`, texts(true, "lower", false)},
		{hf + `{"clean":"canonicalize","strip_sep_token":true}}`, texts(true, "canonicalize", true)},
		{hf + `{"use_fast":true,"language":null,"padding_side":"right","truncation_side":"left","model_max_length":5,` +
			`"clean_up_tokenization_spaces":false}}`, texts(true, "whitespace", false)},
		{`{"hf_tokenizer_name":7}`, "text_cfg.hf_tokenizer_name is 7"},
		{`{"hf_tokenizer_name":"x","tokenizer_mode":"clips"}`, `text_cfg.tokenizer_mode "clips" is not supported`},
		{`{"tokenizer_mode":false}`, "text_cfg.tokenizer_mode false"},
		{`{"tokenizer_kwargs":[1]}`, "tokenizer_kwargs is [1], want an object"},
		{hf + `{"clean":"upper"}}`, `tokenizer_kwargs.clean is "upper", want "lower"`},
		{hf + `{"clean":null}}`, "tokenizer_kwargs.clean is null"},
		{hf + `{"clean":""}}`, `tokenizer_kwargs.clean is ""`},
		{hf + `{"strip_sep_token":"yes"}}`, `strip_sep_token is "yes", want true or false`},
		{hf + `{"language":"fra_Latn"}}`, `tokenizer_kwargs.language = "fra_Latn" is not supported: remove it`},
		{hf + `{"use_fast":false}}`, "tokenizer_kwargs.use_fast = false"},
		{hf + `{"padding_side":"left"}}`, `tokenizer_kwargs.padding_side = "left"`},
		{hf + `{"context_length":9}}`, "tokenizer_kwargs.context_length = 9"},
		{hf + `{"a\nb":{"c":[null]}}}`, `= {"c":[null]} is not supported`},
		{`{"tokenizer_kwargs":{"strip_sep_token":true}}`, "tokenizer_kwargs.strip_sep_token = true"},
		{`{"tokenizer_kwargs":{"reduction_mask":"syntax"}}`, `tokenizer_kwargs.reduction_mask = "syntax"`},
		{`{"tokenizer_kwargs":{"additional_special_tokens":["x"]}}`, `additional_special_tokens = ["x"]`},
		{`{"tokenizer_kwargs":{"bpe_path":"x"}}`, "tokenizer_kwargs.bpe_path"},
		{`{"hf_tokenizer_name":"x","tokenizer_kwargs":{"strip_sep_token":true}}`, "pool_type first or last"},
		{`{"hf_tokenizer_name":"x","hf_model_name":"x","pool_type":"last","tokenizer_kwargs":{"strip_sep_token":true}}`,
			"OpenCLIP's own text tower"},
	} {
		text, err := parseJSON([]byte(c.text))
		if err != nil {
			t.Fatal(c.text, err)
		}
		got, err := openCLIPTreatment("a: ", text)
		switch want := c.want.(type) {
		case *Texts:
			if err != nil || got != *want {
				t.Errorf("%s: %+v, %v, want %+v", c.text, got, err, *want)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
				!strings.HasPrefix(err.Error(), "a: text_cfg.") {
				t.Errorf("%s: %v, want %s", c.text, err, want)
			}
		}
	}
}

// CLIP's own tokenizer converts to lower case if it is transformers', and keeps capitals if OpenCLIP's SimpleTokenizer
// cleans only white space: A is its byte, and the id of this byte at the end of a word is 256 larger.
func TestTextsOnCLIP(t *testing.T) {
	own, err := tokenizer.Load("../tokenizer/testdata/merges-1000.txt")
	goldentest.NoError(t, err)
	for _, c := range []struct {
		x    Texts
		text string
		want int
	}{
		{Texts{}, "A", 'a' - '!' + 256},
		{Texts{tokenizer.TextCleaning{Clean: tokenizer.Whitespace}, true}, "A", 'a' - '!' + 256},
		{Texts{tokenizer.TextCleaning{Clean: tokenizer.Whitespace}, false}, "A", 'A' - '!' + 256},
		{Texts{tokenizer.TextCleaning{Clean: tokenizer.Canonicalize}, true}, "A.", 'a' - '!' + 256},
	} {
		tok, err := c.x.Apply(own)
		goldentest.NoError(t, err)
		if ids, err := tok.Encode(c.text); err != nil || len(ids) != 1 || ids[0] != c.want {
			t.Errorf("%+v: %v, %v, want %d", c.x, ids, err, c.want)
		}
	}
}

// FuzzTokenizing: no configuration of texts makes the reader panic, and errors are one line.
func FuzzTokenizing(f *testing.F) {
	f.Add([]byte(`{"hf_tokenizer_name":"x","pool_type":"last","tokenizer_kwargs":{"strip_sep_token":true}}`))
	f.Add([]byte(`{"tokenizer_mode":"clips","tokenizer_kwargs":{"a\nb":[1e999,null,{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := parseJSON(data)
		if err != nil {
			return
		}
		if x, err := openCLIPTreatment("a: ", text); err != nil {
			oneLined(t, err)
		} else if err := x.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
