package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
)

// method checks a file of the method "onnx" as a run does, and reports whether the file is one.
func (c *checks) method(path string) (is bool, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() > layer.MaxFile {
		return false, err
	}

	content, err := os.ReadFile(path)
	if err != nil || !fromfile.Is(content) {
		return false, err
	}

	if err := fromfile.Check(content); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}

	m, err := methods.Build("onnx", nil, map[string]any{"file": string(layer.EmbedFile(filepath.Base(path), content))})
	if err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}

	c.add(checkDone{What: "method with the loss " + strings.Join(method.TermNames(m), " + "), OK: true})
	return true, nil
}
