package attack

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// picture is a PNG of one colour.
func picture(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	err := png.Encode(&b, image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Gray{100}}))
	goldentest.NoError(t, err)
	return b.Bytes()
}

// mostMemory returns the peak memory of a process so far, in bytes, as Linux counts it; 0 if the process has ended.
func (p *process) mostMemory() int {
	p.t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		p.t.Skip("this system does not tell how much memory a process had: ", err)
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	select {
	case <-p.Done:
		return 0
	default:
	}
	if peak == nil { // it is ending, or has ended before Done says so
		return 0
	}
	kB, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kB << 10
}

// Web pages in a browser on this machine cannot use a classifier that this machine serves: a name that resolves to
// 127.0.0.1 reads nothing, and a page of another origin cannot send images. Many large images of permitted programs at
// the same time need no more than one budget of memory.
func TestServedClassifier(t *testing.T) {
	s := openTrial(t)
	call(t, "run", s.at("attack.yaml"), "--out", s.at("run"), "--set", "train.rounds=1", "--set", "eval.every=1")
	call(t, "export", s.at("run"), "--client", "0", "--out", s.at("c.onnx"))
	address := busytest.Address(t, "127.0.0.1")
	t.Setenv("GOGC", "25") // its memory is little more than what it uses
	p := launch(t, programs.Promptfed, "predict", s.at("c.onnx"), "--listen", address)
	p.says("until Ctrl-C")
	ask := func(method, host string, body []byte, headers ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Host = host
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		return answer.StatusCode, string(text)
	}
	small, huge := picture(t, 32, 32), picture(t, 8192, 8192)
	before := p.mostMemory()
	for _, c := range []struct {
		name, method, host string
		body               []byte
		headers            []string
		want               int
	}{
		{"a program", "POST", address, small, nil, 200},
		{"curl", "POST", "localhost", small, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
		{"DNS rebinding", "GET", "evil.example", nil, nil, 403},
		{"DNS rebinding", "POST", "evil.example:80", small, []string{"Origin", "http://evil.example:80"}, 403},
		{"another origin", "POST", address, huge, []string{"Origin", "http://evil.example"}, 403},
		{"another origin", "POST", address, huge, []string{"Origin", "null"}, 403},
		{"another origin", "POST", address, huge, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"67 megapixels", "POST", address, huge, nil, 413},
	} {
		status, text := ask(c.method, c.host, c.body, c.headers...)
		if status != c.want || status != 200 && strings.Count(text, "\n") != 1 ||
			status == 403 && strings.Contains(text, "circle") {
			t.Errorf("%s: %d %q, want %d", c.name, status, text, c.want)
		}
	}
	if grown := p.mostMemory() - before; grown > 300<<20 {
		t.Errorf("images that are refused took %d MiB", grown>>20)
	}
	largest := picture(t, 4096, 6144) // the whole budget of pixels
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, text := ask("POST", address, largest); status != 200 && status != 503 {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	all.Wait()
	most := p.mostMemory() - before
	t.Logf("eight images of 24 Mi pixels at a time: %d MiB", most>>20)
	if most > 2500<<20 { // 1400 usually; eight budgets are more than 8000
		t.Errorf("eight images at a time took %d MiB", most>>20)
	}
	if status, text := ask("POST", address, small); status != 200 {
		t.Errorf("afterwards: %d %s", status, text)
	}
}
