package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"promptfed/runtime/convert"
)

// noNull makes the decoder reject null, which it otherwise reads as 0, "" or an empty map.
var noNull = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ any) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is no value")
	}
	return errors.ErrUnsupported // this function decodes no other value
}))

// parseHeader decodes one member after another, so that limits hold before memory is allocated. This decoder rejects
// repeated names and names in another case; encoding/json takes the last of two.
func parseHeader(raw []byte) (map[string]entry, map[string]string, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	tensors := map[string]entry{}
	var meta map[string]string
	next := func() (name string, value jsontext.Value, err error) {
		token, err := dec.ReadToken()
		if err == nil && token.Kind() == '"' {
			name = token.String()
			value, err = dec.ReadValue()
		}
		return name, value, err
	}

	_, _, err := next() // the brace
	for err == nil && dec.PeekKind() != '}' {
		var name string
		var value jsontext.Value
		if name, value, err = next(); err != nil {
			break
		}

		switch {
		case len(name) > maxName:
			return nil, nil, fmt.Errorf("a tensor has a name of %d bytes, the limit is %d", len(name), maxName)
		case name == metadataKey:
			if err := json.Unmarshal(value, &meta, noNull); err != nil {
				return nil, nil, fmt.Errorf("%s: bad entry: %.300s", metadataKey, err)
			}
			continue
		}

		if tensors[name], err = parseEntry(value); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
	}

	if err == nil {
		_, _, err = next() // the brace
	}

	if err != nil {
		return nil, nil, fmt.Errorf("header is not JSON: %.300s", err)
	}

	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, nil, fmt.Errorf("%d bytes follow the JSON object of the header",
			len(bytes.TrimSpace(raw))-int(dec.InputOffset()))
	}

	return tensors, meta, nil
}

func parseEntry(value jsontext.Value) (entry, error) {
	if len(value) > maxEntry {
		return entry{}, fmt.Errorf("bad entry: it has %d bytes, the limit is %d", len(value), maxEntry)
	}

	var fields struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(value, &fields, noNull); err != nil {
		return entry{}, fmt.Errorf("bad entry: %.300s", err)
	}

	if fields.DType == "" || fields.Shape == nil || len(fields.Offsets) != 2 {
		return entry{}, errors.New("an entry needs dtype, shape and two data_offsets")
	}

	unit, known := dtypes[fields.DType]
	begin, end := fields.Offsets[0], fields.Offsets[1]
	switch {
	case !known:
		return entry{}, fmt.Errorf("unknown dtype %.100q", fields.DType)
	case begin < 0 || end < begin:
		return entry{}, fmt.Errorf("data_offsets [%d %d] are not in ascending order", begin, end)
	}

	want, err := byteSize(fields.Shape, unit.size)
	if err != nil {
		return entry{}, err
	}

	if end-begin != want {
		return entry{}, fmt.Errorf("%s%v needs %d bytes, but data_offsets [%d %d] hold %d", fields.DType, fields.Shape,
			want, begin, end, end-begin)
	}

	dims := convert.Slice(fields.Shape, func(d int64) int { return int(d) })
	return entry{fields.DType, dims, begin, end}, nil
}
