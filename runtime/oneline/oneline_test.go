package oneline

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" \n\t\r\n ", ""},
		{"one line", "one line"},
		{"  a \t b\u00a0\v\f\u2028c  ", "a b c"},
		{"a\nb", "a; b"},
		{"a\r\nb\rc", "a; b; c"},
		{"\n\na\n \n\nb\n", "a; b"},
		{"yaml: errors:\n  line 1: x\n  line 2: y", "yaml: errors: line 1: x; line 2: y"},
		{"a:\nb;\nc,\nd.\ne", "a: b; c, d. e"},
		{"a: \n\n\tb", "a: b"},
		{"a!\nb", "a!; b"},
		{"ä\xff\xfeö\ncafé\n\xff", "ä?ö; café; ?"},
	} {
		if got := Text(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
		if got := Text(c.want); got != c.want {
			t.Errorf("the line %q becomes %q", c.want, got)
		}
	}
}

func TestShort(t *testing.T) {
	x := strings.Repeat("x", 399)
	for _, c := range []struct{ text, want string }{
		{"a\n  b\xffc", "a; b?c"},
		{x + "x", x + "x"},
		{x + "xx", x + "x..."},
		{x + "ä", x + "..."},
		{x + "\n\n ", x},
		{x + "\nb", x + ";..."},
	} {
		if got := Short(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestError(t *testing.T) {
	if err := Error(nil); err != nil {
		t.Errorf("%v for nil", err)
	}

	line := errors.New("a b")
	if got := Error(line); got != line {
		t.Errorf("%#v in place of the error itself", got)
	}

	many := errors.Join(errors.New("a"), &fs.PathError{Op: "open", Path: "b", Err: fs.ErrNotExist})
	err := Error(many)
	if err.Error() != "a; open b: file does not exist" {
		t.Errorf("%q", err)
	}

	var path *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &path) || path.Path != "b" || errors.Unwrap(err) != many {
		t.Errorf("%#v does not unwrap to %#v", err, many)
	}
}
