package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// A method from a file trains, and its run folder needs the file no more: the run is resumed and reported, classifies
// and exports without it. A run that is killed continues to the same bytes. Another file is another experiment. A
// client on another machine runs the server's file only if it is told to, by the file's digest, and then both learn
// what one process learns.
func TestMethodFile(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	content, err := methodtest.ONNXFiles["scaffold"]()
	goldentest.NoError(t, err)
	other, err := methodtest.ONNXFiles["fedprox"]()
	goldentest.NoError(t, err)
	conf, file := at("small.yaml"), at("scaffold.onnx")
	inGo := small[strings.Index(small, "method:"):strings.Index(small, "backbones:")]
	text := strings.Replace(string(read(t, dir, "small.yaml")), inGo, "method: onnx\noptions: {file: "+file+
		", tokens: 4}\n", 1)
	for name, b := range map[string][]byte{conf: []byte(text), file: content, at("other.onnx"): other} {
		filetest.Write(t, name, b)
	}
	mustRun(t, "run", conf, "--out", at("run"))
	mustRun(t, "run", conf, "--out", at("short"), "--set", "train.rounds=2")
	if _, said, code := call("run", conf, "--out", at("run"), "--resume", "--set", "options.file="+
		at("other.onnx")); code != usage || !strings.Contains(said, "options.file is scaffold.onnx sha256:") {
		t.Errorf("another file: exit %d, %s", code, said)
	}

	const many = "train.rounds=40"
	mustRun(t, "run", conf, "--out", at("whole"), "--set", many)
	for kills := 0; kills < 3; kills++ {
		rounds := []int{1, 8, 20}[kills]
		p := start(t, "run", conf, "--out", at("killed"), "--resume", "--set", many)
		busytest.Until(t, "a round", func() bool { return p.Ended() || committed(at("killed")) > rounds })
		if !p.killed() { // it was faster than this test, and begins anew
			if p.ends(t); t.Failed() {
				return
			}
			os.RemoveAll(at("killed"))
			kills = -1
		}
	}
	mustRun(t, "run", conf, "--out", at("killed"), "--resume", "--set", many)
	if !bytes.Equal(together(t, at("killed")), together(t, at("whole"))) {
		t.Error("after three kills the run learned something else")
	}

	digest, addr := layer.Digest(content), busytest.Address(t, "127.0.0.1")
	mustRun(t, "certs", at("certs"), "--clients", "4")
	server := start(t, "serve", conf, "--out", at("serve"), "--listen", addr, "--tls", at("certs"), "--quorum", "1")
	images := at("images.yaml") // of a client, which does not have the file
	own := text[strings.Index(text, "data:"):strings.Index(text, "\ntrain:")]
	filetest.Write(t, images, own)
	join := func(k string, more ...string) []string {
		return append([]string{"join", "https://" + addr, "--client", k, "--tls", at("certs"), "--config", images,
			"--partition", "--state", at("client" + k), "--set", "backbones=[" + at("bundle") + "]"}, more...)
	}
	if _, said, code := call(join("0")...); code != failed || !strings.Contains(said, "--accept-method "+digest) {
		t.Errorf("a client that accepts no file: exit %d, %s", code, said)
	}
	if got := read(t, at("client0"), "method-"+digest[:12]+".onnx"); !bytes.Equal(got, content) {
		t.Error("the client cannot look at the file")
	}
	dirs := []string{at("serve")}
	var clients []*process
	for _, k := range []string{"0", "1", "2", "3"} {
		clients = append(clients, start(t, join(k, "--accept-method", digest)...))
		dirs = append(dirs, at("client"+k))
	}
	server.ends(t)
	for _, c := range clients {
		c.ends(t)
	}
	if t.Failed() {
		return
	}
	if !bytes.Equal(together(t, dirs...), together(t, at("run"))) {
		t.Error("server and clients learned something else than one process")
	}

	goldentest.NoError(t, os.Remove(file))
	image := at("image.png")
	drawImage(t, image)
	want := mustRun(t, "predict", at("run"), "--client", "2", "--json", image)
	mustRun(t, "export", at("run"), "--client", "2", "--out", at("classifier.onnx"))
	if got := mustRun(t, "predict", at("client2"), "--client", "2", "--json", image); got != want {
		t.Errorf("the client classifies as %s, the run as %s", got, want)
	}
	mustRun(t, "report", at("run"))
	mustRun(t, "run", at("short/config.yaml"), "--out", at("again"), "--set", "train.rounds=6")
	if !bytes.Equal(together(t, at("again")), together(t, at("run"))) {
		t.Error("the configuration of a run folder trains something else")
	}
}
