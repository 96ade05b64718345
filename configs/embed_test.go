package configs

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/filetest"
)

// A file that an option names is read with the configuration, once, wherever the option stands. A configuration from
// another machine names no file of this one.
func TestFilesOfOptions(t *testing.T) {
	dir := t.TempDir()
	file := filetest.Write(t, filepath.Join(dir, "my method.onnx"), "content")
	const name = "my_method.onnx sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
	for _, options := range []string{"{file: " + file + "}", "{onnx: {file: " + file + "}}"} {
		path := filetest.Write(t, filepath.Join(dir, "c.yaml"), "method: onnx\noptions: "+options)
		opened, err := Open(path, nil)
		c := opened.Config
		files := methods.Files(c.Options)
		if err != nil || len(files) != 1 || files[0].String() != name {
			t.Fatalf("%s: %v, %v", options, files, err)
		}
		text, err := YAML(c)
		if err != nil {
			t.Fatal(err)
		}
		if short := layer.ShortenFiles(string(text)); !strings.Contains(short, name+"\n") || strings.Contains(short,
			"base64") {
			t.Errorf("people read %s", short)
		}
		c, err = ParseText("the run's configuration", text)
		if err == nil {
			c, err = c.CheckInvitation()
		}
		if files := methods.Files(c.Options); err != nil || len(files) != 1 || files[0].String() != name {
			t.Errorf("the configuration again: %v, %v", files, err)
		}
		c, err = ParseText("the run's configuration", []byte("method: onnx\noptions: "+options))
		if err != nil {
			t.Fatal(err)
		}
		_, invited := c.CheckInvitation()
		_, shared := c.CheckShared()
		for _, err := range []error{invited, shared} {
			if err == nil || !strings.Contains(err.Error(), "must hold its files") {
				t.Errorf("a path of another machine: %v", err)
			}
		}
	}
	if _, err := Open(filepath.Join(dir, "c.yaml"), []string{"options={file: nowhere}"}); err == nil ||
		!strings.HasPrefix(err.Error(), "--set options={file: nowhere}: options.file: ") {
		t.Errorf("no such file: %v", err)
	}
	for _, f := range []layer.File{"example", "m.onnx", ""} {
		if f.String() != string(f) || f.Embedded() {
			t.Errorf("%q is %s", string(f), f)
		}
	}
}
