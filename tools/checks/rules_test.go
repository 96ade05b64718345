package checks

import (
	"slices"
	"strings"
	"testing"
)

// Every rule can fail: each case breaks one rule in a made-up module, or just complies.
func TestImportRules(t *testing.T) {
	ours := func(path string) string { return Module + "/" + path }
	cases := []struct {
		name string
		pkg  Package
		want string // part of the one finding; "" for none
	}{
		{"down", Package{ImportPath: ours("models/clip"), Imports: []string{ours("runtime/graph"), "os"},
			Deps: []string{ours("runtime/ops")}}, ""},
		{"graphs without operators", Package{ImportPath: ours("models/clip"), Imports: []string{ours("runtime/graph")}},
			"not promptfed/runtime/ops, which"},
		{"same layer", Package{ImportPath: ours("models/bundle"), Imports: []string{ours("models/clip")}}, ""},
		{"runtime imports models", Package{ImportPath: ours("runtime/nn"), Imports: []string{ours("models/clip")}},
			"models is above runtime"},
		{"a test imports upwards", Package{ImportPath: ours("runtime/nn"),
			TestImports: []string{ours("federation/engine/message")}}, "federation is above runtime"},
		{"an outside test imports upwards", Package{ImportPath: ours("models/clip"),
			XTestImports: []string{ours("tools/lab/bench")}}, "tools is above models"},
		{"models imports federation", Package{ImportPath: ours("models/tiny"),
			Imports: []string{ours("federation/data")}}, "federation is above models"},
		{"federation imports configs", Package{ImportPath: ours("federation/experiment"),
			Imports: []string{ours("configs")}}, "configs is above federation"},
		{"configs imports tools", Package{ImportPath: ours("configs"), Imports: []string{ours("tools/gendocs")}},
			"tools is above configs"},
		{"no layer", Package{ImportPath: ours("internal/x")}, "is in no layer"},
		{"alike by name only", Package{ImportPath: ours("runtimes/x")}, "is in no layer"},
		{"at the root", Package{ImportPath: Module, GoFiles: []string{"main.go"}}, "is in no layer"},
		{"at runtime's root", Package{ImportPath: ours("runtime"), GoFiles: []string{"x.go"}}, "standard library"},
		{"ORT in its package", Package{ImportPath: ours("runtime/ort"),
			Imports: []string{"github.com/yalue/onnxruntime_go"}}, ""},
		{"ORT elsewhere", Package{ImportPath: ours("runtime/grad"),
			Imports: []string{"github.com/yalue/onnxruntime_go"}}, "only runtime/ort may"},
		{"viper in configs", Package{ImportPath: ours("configs"), Imports: []string{"github.com/spf13/viper"}}, ""},
		{"viper in a command", Package{ImportPath: ours("tools/promptfed/cli"),
			Imports: []string{"github.com/spf13/viper"}}, "only configs may"},
		{"viper in a test", Package{ImportPath: ours("federation/data"),
			TestImports: []string{"github.com/spf13/viper"}}, "only configs may"},
		{"cobra in configs", Package{ImportPath: ours("configs"), Imports: []string{"github.com/spf13/cobra"}},
			"only tools may"},
		{"progress bar below", Package{ImportPath: ours("federation/engine"),
			Imports: []string{"github.com/schollz/progressbar/v3"}}, "only tools may"},
		{"plots below", Package{ImportPath: ours("federation/engine"), Imports: []string{"gonum.org/v1/plot/vg"}},
			"only tools/lab may"},
		{"plots in the lab", Package{ImportPath: ours("tools/lab/figures"),
			Imports: []string{"gonum.org/v1/plot/vg"}}, ""},
		{"a report imports the lab", Package{ImportPath: ours("tools/promptfed/report"),
			Imports: []string{ours("tools/lab/report")}}, ""},
		{"a run imports the lab", Package{ImportPath: ours("tools/promptfed/run"),
			Imports: []string{ours("tools/lab/report")}}, "nothing under tools/promptfed/run may"},
		{"a server reaches the lab", Package{ImportPath: ours("tools/promptfed/distributed"),
			Deps: []string{ours("tools/lab/tables")}}, "nothing under tools/promptfed/distributed may"},
		{"a run reaches plots", Package{ImportPath: ours("tools/promptfed/run"),
			Deps: []string{"gonum.org/v1/plot"}}, "nothing under tools/promptfed/run may"},
		{"a test of e2e", Package{ImportPath: ours("tools/e2e/chaos"),
			XTestImports: []string{ours("tools/e2e/proctest")}}, ""},
		{"a test elsewhere uses e2e", Package{ImportPath: ours("tools/promptfed/run"),
			TestImports: []string{ours("tools/e2e/proctest")}}, "only tools/e2e may"},
		{"models run ORT", Package{ImportPath: ours("models/clip"), Imports: []string{ours("runtime/ort")}},
			"models/clip needs promptfed/runtime/ort"},
		{"models reach ORT", Package{ImportPath: ours("models/clip"), Deps: []string{"fmt", ours("runtime/ort")}},
			"models/clip needs promptfed/runtime/ort"},
		{"tests of models run ORT", Package{ImportPath: ours("models/clip"),
			XTestImports: []string{ours("runtime/ort")}}, ""},
		{"a method imports the engine", Package{ImportPath: ours("federation/methods"),
			Imports: []string{ours("federation/engine")}}, "needs promptfed/federation/engine"},
		{"a method reaches the wire", Package{ImportPath: ours("federation/methods"),
			Deps: []string{ours("federation/engine/message")}}, "needs promptfed/federation/engine/message"},
		{"a group reaches the engine", Package{ImportPath: ours("federation/methods/image"),
			Deps: []string{ours("federation/engine")}}, "nothing under federation/methods may"},
		{"a group imports parts", Package{ImportPath: ours("federation/methods/text/averaged"),
			Imports: []string{ours("federation/methods/parts/layer")}}, ""},
		{"a group imports another", Package{ImportPath: ours("federation/methods/wrappers/loss"),
			Imports: []string{ours("federation/methods/wrappers/personal")}}, "federation/methods/parts only"},
		{"a group imports the table", Package{ImportPath: ours("federation/methods/image"),
			Imports: []string{ours("federation/methods")}}, "federation/methods/parts only"},
		{"a part imports a group", Package{ImportPath: ours("federation/methods/parts/check"),
			Imports: []string{ours("federation/methods/image")}}, "federation/methods/parts only"},
		{"a method reaches ORT", Package{ImportPath: ours("federation/methods"), Deps: []string{ours("runtime/ort")}},
			"needs promptfed/runtime/ort"},
		{"a method reads files", Package{ImportPath: ours("federation/methods"), Imports: []string{"os"}},
			"imports os"},
		{"a method starts programs", Package{ImportPath: ours("federation/methods"), Imports: []string{"os/exec"}},
			"imports os/exec"},
		{"a method talks", Package{ImportPath: ours("federation/methods"), Imports: []string{"net/http"}},
			"imports net/http"},
		{"a method knows the time", Package{ImportPath: ours("federation/method"), Imports: []string{"time"}},
			"imports time"},
		{"fmt needs os", Package{ImportPath: ours("federation/methods"), Imports: []string{"fmt"}, Deps: []string{"os",
			"time"}}, ""},
		{"the engine knows methods", Package{ImportPath: ours("federation/engine"),
			Deps: []string{ours("federation/methods")}}, "needs promptfed/federation/methods"},
		{"the engine knows the interface", Package{ImportPath: ours("federation/engine"),
			Imports: []string{ours("federation/method")}}, ""},
		{"workers talk to NATS", Package{ImportPath: ours("federation/net/workers"),
			Imports: []string{"github.com/nats-io/nats.go"}}, ""},
		{"clients at other institutions talk to NATS", Package{ImportPath: ours("federation/net/client"),
			Imports: []string{"github.com/nats-io/nats.go"}}, "nothing under federation/net/client may"},
		{"the server of clients knows a client", Package{ImportPath: ours("federation/net/server"),
			Deps: []string{ours("federation/net/client")}}, "nothing under federation/net/server may"},
		{"the engine speaks gRPC", Package{ImportPath: ours("federation/engine"),
			Imports: []string{"connectrpc.com/connect"}}, "only federation/net, tools/e2e may"},
		{"a command connects", Package{ImportPath: ours("tools/promptfed/distributed"),
			Imports: []string{"github.com/nats-io/nats.go"}}, ""},
		{"a command embeds", Package{ImportPath: ours("tools/promptfed/distributed"),
			Imports: []string{"github.com/nats-io/nats-server/v2/server"}},
			"only federation/net/natsserver may"},
		{"the engine talks", Package{ImportPath: ours("federation/engine"),
			Imports: []string{"github.com/nats-io/nats.go"}}, "nothing under federation/engine may"},
		{"the server of clients knows methods", Package{ImportPath: ours("federation/net/server"),
			Deps: []string{ours("federation/methods")}}, "needs promptfed/federation/methods"},
		{"a worker serves NATS", Package{ImportPath: ours("federation/net/workers"),
			Deps: []string{"github.com/nats-io/nats-server/v2/server"}},
			"nothing under federation/net/workers may"},
		{"tests of the network know methods", Package{ImportPath: ours("federation/net/nettest"),
			Imports: []string{ours("federation/methods")}}, ""},
		{"a certificate knows the engine", Package{ImportPath: ours("federation/net/certs"),
			Deps: []string{ours("federation/engine")}}, "nothing under federation/net/certs may"},
		{"messages know methods", Package{ImportPath: ours("federation/engine/message"),
			Imports: []string{ours("federation/methods")}}, "needs promptfed/federation/methods"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { expect(t, Imports([]Package{c.pkg}), c.want) })
	}
}

// expect fails unless there is one finding that contains a text, or none.
func expect(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("found %q; expected nothing", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("found %q; expected one line with %q", got, want)
	}
}

func TestUndocumentedRule(t *testing.T) {
	bad := Undocumented([]Package{{ImportPath: Module + "/runtime/a", GoFiles: []string{"a.go"}, Doc: "Package a is."},
		{ImportPath: Module + "/runtime/b", GoFiles: []string{"b.go"}}, {ImportPath: Module + "/runtime/tests"}})
	if len(bad) != 1 || !strings.HasPrefix(bad[0], "runtime/b: ") {
		t.Errorf("%q", bad)
	}
}

func TestNamesTestedRule(t *testing.T) {
	cases := []struct{ body, want string }{
		{`x := Config{Method: "fedpha"}; _ = x`, ""},
		{`if m == "other" {}`, ""},
		{`if m == "fedpha" {}`, "is compared"},
		{`if ("fedprox") != m {}`, "is compared"},
		{`switch m { case "a", "fedpha": }`, "is a case"},
		{`_ = map[string]int{"fedpha": 1}`, "is a key"},
		{`_ = table["fedpha"]`, "is an index"},
		{`_ = strings.HasPrefix(m, "fedpha")`, "is searched for"},
		{`_ = slices.Contains(with, "fedprox")`, "is searched for"},
		{`const name = "fedpha"`, "is given another name"},
		{"if m == `fedpha` {}", "is compared"},
		{`fmt.Println("fedpha")`, ""},
	}
	for _, c := range cases {
		bad, err := NamesTested("x.go", []byte("package x\nfunc f() { "+c.body+" }"), []string{"fedpha", "fedprox"})
		if err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		t.Run(c.body, func(t *testing.T) { expect(t, bad, c.want) })
	}
	if _, err := NamesTested("x.go", []byte("package"), nil); err == nil {
		t.Error("a file that is no Go was read")
	}
}

func TestMetricListsRule(t *testing.T) {
	names := []string{"f1", "worst10", "own-classes", "ece"}
	for source, bad := range map[string]int{
		`var x = []string{"f1", "worst10", "ece"}`:                                                                1,
		`var x = map[string]int{"global/f1": 1, "own_classes": 2, "worst10": 3}`:                                  1,
		"type x struct {\n A int `json:\"f1\"`\n B, C int `json:\"ece,omitempty\"`\n D int `json:\"worst10\"`\n}": 1,
		`var x = []string{"f1", "f1", "ece"}`:                                                                     0,
		`var x = "f1, worst10 and ece"`:                                                                           0,
	} {
		got, err := MetricLists("x.go", []byte("package x\n"+source), names)
		if err != nil || len(got) != bad {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
}

// expectOfBodies runs a rule on functions, each with a body, and compares what it says of them.
func expectOfBodies(t *testing.T, rule func(string, []byte) ([]string, error), says map[string]string) {
	for body, want := range says {
		bad, err := rule("x.go", []byte("package x\nfunc f() { "+body+" }"))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		t.Run(body, func(t *testing.T) { expect(t, bad, want) })
	}
}

func TestExternalReadersRule(t *testing.T) {
	expectOfBodies(t, ExternalReaders, map[string]string{
		`onnx.SetExternal(t, onnx.External{File: "w"})`: "",
		`e, err := onnx.ExternalOf(t)`:                  "",
		`for _, e := range t.ExternalData {}`:           "only runtime/onnx may read external data",
		`n := len(t.GetExternalData())`:                 "x.go:2:",
		`t.DataLocation = 1`:                            "DataLocation",
		`f(onnx.TensorProto_EXTERNAL)`:                  "TensorProto_EXTERNAL",
		`t := &onnx.TensorProto{DataLocation: 1}`:       "DataLocation",
	})
}

func TestErrorTextsRule(t *testing.T) {
	expectOfBodies(t, ErrorTexts, map[string]string{
		`_ = strings.Contains(err.Error(), "x")`:          "x.go:2:16: strings.Contains searches the text",
		`_, text, _ := strings.Cut((e.Err.Error()), "x")`: "Cut searches",
		`_ = pattern.FindStringSubmatch(err.Error())`:     "FindStringSubmatch searches",
		`_ = strings.TrimPrefix("x", err.Error())`:        "TrimPrefix searches",
		`_ = strings.Split(err.Error(), "x")`:             "",
		`_ = strings.Contains(text, "x")`:                 "",
		`http.Error(w, err.Error(), 500)`:                 "",
	})
}

func TestParsedNamesRule(t *testing.T) {
	expectOfBodies(t, ParsedNames, map[string]string{
		`name, ok := strings.CutPrefix(in, "param/")`: "x.go:2:24: strings.CutPrefix takes a name apart",
		`kind, name, _ := strings.Cut(in, "/")`:       "Cut takes",
		`_ = strings.SplitN(in, "/", 2)`:              "SplitN takes",
		`_ = strings.ReplaceAll(template, "{}", "x")`: "",
		`_ = in.Kind == method.ParamInput`:            "",
	})
}

func TestPlacesRule(t *testing.T) {
	expect(t, Places([]string{"go.mod", ".ci/run", "models/clip/clip.go", "docs/formats.md"}), "")
	expect(t, Places([]string{"internal/x.go"}), "internal/x.go")
	expect(t, Places([]string{"testdata/x.bin"}), "testdata/x.bin")
}

func TestSizesRule(t *testing.T) {
	expect(t, Sizes(map[string]int64{"a": MaxFile - 1, "b": 3}), "")
	expect(t, Sizes(map[string]int64{"a": MaxFile, "b": 3}), "a has 5242880 bytes")
	many := map[string]int64{}
	for i := range 13 { // 13 files of just under 5 MiB are above 60 MiB
		many[strings.Repeat("x", i+1)] = MaxFile - 1
	}
	expect(t, Sizes(many), "together")
}

func TestTracesRule(t *testing.T) {
	// in pieces, because the rule reads this file too
	bad := []string{"/wor" + "k/main", "read /ho" + "me/ada/x", `"/tm` + `p/x"`, "=/ro" + "ot/x", "https://registry" +
		".npmjs.org/x",
		"GOPROXY=https://proxy" + ".golang.org", "files.python" + "hosted.org", "Registry" + ".example.com"}
	for _, line := range bad {
		if got := Traces("f", []byte("first\n"+line+"\n")); len(got) != 1 || !strings.HasPrefix(got[0], "f:2: ") {
			t.Errorf("%q: found %q; expected one line about f:2", line, got)
		}
	}
	good := []string{"../shared/data/pacs", "/usr/bin/python3", "registry.Lock()", "https://github.com/x/home/y",
		"a/tmp/b", "$HOME/tmp/b",
		"${dir}/tmp/x"}
	for _, line := range good {
		expect(t, Traces("f", []byte(line)), "")
	}
	expect(t, Traces("f", slices.Concat([]byte{0}, []byte(bad[0]))), "")
}

func TestBusyTestsRule(t *testing.T) {
	for body, want := range map[string]string{
		`time.Sleep(d)`:                                              "busytest.Until or Delay",
		`busytest.Delay(time.Second)`:                                "",
		`select { case <-time.After(d): }`:                           "busytest.Hung",
		`ctx, stop := context.WithTimeout(ctx, d)`:                   "busytest.Context",
		`ctx, stop := context.WithCancel(ctx)`:                       "",
		`for time.Now().Before(end) {}`:                              "compares the time",
		`if end.Before(time.Now()) {}`:                               "compares the time",
		`later := time.Now().Add(time.Hour)`:                         "",
		`if time.Since(began) > time.Minute {}`:                      "compares seconds",
		`if time.Since(began).Seconds() > 60 {}`:                     "compares seconds",
		`if 2*time.Since(began) > time.Minute {}`:                    "compares seconds",
		`took := time.Since(began); t.Log(took)`:                     "",
		`took := time.Since(began); if took > time.Minute {}`:        "compares seconds",
		`synctest.Test(t, func(*testing.T) { time.Sleep(d) })`:       "",
		`synctest.Test(t, func(*testing.T) {}); time.Sleep(d)`:       "time.Sleep",
		`serve("127.0.0.1:80` + `80")`:                               "127.0.0.1:80" + "80 is a fixed port",
		`serve("https://localhost:84` + `43/x")`:                     "fixed port",
		`says("cannot unmar` + `shal JSON")`:                         "differs from process to process",
		`serve("127.0.0.1:0", "127.0.0.1:1", "192.0.2.1:84` + `43")`: "",
	} {
		source := []byte("package x\nfunc f() { " + body + " }\nfunc BenchmarkX() { time.Sleep(d) }")
		bad, err := BusyTests("x_test.go", source)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		t.Run(body, func(t *testing.T) { expect(t, bad, want) })

		if bad, err := BusyTests("x.go", source); err != nil || len(bad) > 0 {
			t.Errorf("%s, but in a test: %v, %v", body, bad, err)
		}
	}
}
