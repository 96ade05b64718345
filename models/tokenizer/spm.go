package tokenizer

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// xlmName is SentencePiece's file of XLM-RoBERTa and its kin, whose ids are not the numbers of its pieces.
const xlmName = "sentencepiece.bpe.model"

// Names of SentencePiece's files in folders.
var spmNames = []string{"spiece.model", xlmName, "tokenizer.model"}

// Types of SentencePiece's pieces and models.
const (
	spmUnknown, spmControl = 2, 3
	spmUnigram             = 1
)

// spmModel holds the fields of SentencePiece's ModelProto that are used.
type spmModel struct {
	pieces           []scored
	kinds            []uint64
	kind             uint64 // of the model
	unknown          int
	charsmap         []byte
	dummyPrefix      bool
	removeWhitespace bool
	fallback         bool
}

// targets are the destinations of the fields of a message, by number: *uint64, *bool, *[]byte, or func([]byte) error.
type targets map[protowire.Number]any

// read reads the fields of a message once and keeps only those with a target.
func (to targets) read(data []byte) error {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}

		data = data[size:]
		var integer uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			integer, size = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var v uint32
			v, size = protowire.ConsumeFixed32(data)
			integer = uint64(v)
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, data)
		}

		if size < 0 {
			return protowire.ParseError(size)
		}

		data = data[size:]
		switch t := to[number].(type) {
		case *uint64:
			*t = integer
		case *bool:
			*t = integer != 0
		case *[]byte:
			*t = value
		case func([]byte) error:
			if err := t(value); err != nil {
				return err
			}
		}
	}

	return nil
}

func parseSPM(data []byte) (model spmModel, err error) {
	model.kind, model.dummyPrefix, model.removeWhitespace, model.unknown = spmUnigram, true, true, -1
	piece := func(b []byte) error {
		if len(model.pieces) >= maxTokens {
			return fmt.Errorf("more than %d tokens", maxTokens)
		}
		var token []byte
		score, kind := uint64(0), uint64(1)
		err := targets{1: &token, 2: &score, 3: &kind}.read(b)
		if kind == spmUnknown {
			model.unknown = len(model.pieces)
		}
		model.pieces = append(model.pieces, scored{token: string(token),
			score: float64(math.Float32frombits(uint32(score)))})
		model.kinds = append(model.kinds, kind)
		return err
	}

	trainer, normalizer := targets{3: &model.kind, 35: &model.fallback}, targets{2: &model.charsmap,
		3: &model.dummyPrefix, 4: &model.removeWhitespace}
	err = targets{1: piece, 2: trainer.read, 3: normalizer.read}.read(data)
	return model, err
}

// readSPM reads SentencePiece's file by converting it to an equivalent tokenizer.json. siglip cleans texts as SigLIP's
// tokenizer does: no ASCII punctuation and, with lower, lower case.
func readSPM(r io.Reader, siglip, lower bool) (*Tokenizer, error) {
	data, err := io.ReadAll(bounded(r, maxJSON))
	if err != nil {
		return nil, err
	}

	spmModel, err := parseSPM(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not SentencePiece's model: %w", err)
	case spmModel.kind != spmUnigram:
		return nil, errors.New("SentencePiece's model is not a unigram model: give the tokenizer.json that " +
			"belongs to it")
	case spmModel.unknown < 0 || len(spmModel.pieces) == 0:
		return nil, errors.New("SentencePiece's model has no token for unknown characters")
	}

	var added, steps, vocab []any
	eos := -1
	for id, p := range spmModel.pieces {
		vocab = append(vocab, []any{p.token, p.score})
		if spmModel.kinds[id] == spmUnknown || spmModel.kinds[id] == spmControl {
			added = append(added, special(id, p.token))
		}
		if p.token == "</s>" {
			eos = id
		}
	}

	if eos < 0 {
		return nil, errors.New("SentencePiece's model has no token </s> that ends texts")
	}

	regex := func(expression, content string) object {
		return object{"type": "Replace", "pattern": object{"Regex": expression}, "content": content}
	}
	if siglip && lower {
		steps = append(steps, object{"type": "Lowercase"})
	}

	if siglip {
		steps = append(steps, regex("[!-/:-@\\[-`{-~]", ""), regex(`\s+`, " "))
	}

	if len(spmModel.charsmap) > 0 {
		steps = append(steps, object{"type": "Precompiled", "precompiled_charsmap": spmModel.charsmap})
	}

	if spmModel.removeWhitespace {
		steps = append(steps, object{"type": "Strip", "strip_left": true, "strip_right": true}, regex(" {2,}", " "))
	}

	scheme := "never"
	if spmModel.dummyPrefix {
		scheme = "always"
	}

	tokenizer, err := fromParts(added,
		object{"type": "Sequence", "normalizers": steps},
		object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true},
		object{"type": "TemplateProcessing",
			"single": []any{object{"Sequence": object{"id": "A", "type_id": 0}},
				object{"SpecialToken": object{"id": "</s>", "type_id": 0}}},
			"pair":           []any{},
			"special_tokens": object{"</s>": object{"id": "</s>", "ids": []int{eos}, "tokens": []string{"</s>"}}}},
		object{"type": "Unigram", "unk_id": spmModel.unknown, "vocab": vocab, "byte_fallback": spmModel.fallback})
	if err != nil {
		return nil, fmt.Errorf("SentencePiece's model: %w", err)
	}

	return tokenizer, nil
}
