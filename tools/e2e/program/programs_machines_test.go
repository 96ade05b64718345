package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
)

// Graphs of a folder are used on other machines too: by clients that join, whose terms have the folder's digest, and by
// workers. Both learn what one process learns with the same graphs. A folder of another experiment is refused.
func TestProgramsAcrossMachines(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	conf, own := at("small.yaml"), at("own.yaml")
	text := strings.ReplaceAll(string(read(t, dir, "small.yaml")), "rounds: 6", "rounds: 2")
	for file, content := range map[string]string{conf: text, own: strings.ReplaceAll(text, "runtime: {",
		"runtime: {programs: "+at("graphs")+", ")} {
		filetest.Write(t, file, content)
	}
	mustRun(t, "programs", conf, "--out", at("graphs"))
	mustRun(t, "run", own, "--out", at("run"))
	var call struct {
		Calls []struct{ Numerics struct{ Programs string } }
	}
	err := json.Unmarshal(read(t, at("run"), "provenance.json"), &call)
	if err != nil || call.Calls[0].Numerics.Programs == "" {
		t.Fatalf("provenance.json has no digest of the graphs: %v", err)
	}

	mustRun(t, "certs", at("certs"), "--clients", "4")
	addr := busytest.Address(t, "127.0.0.1")
	server := start(t, "serve", conf, "--out", at("serve"), "--listen", addr, "--tls", at("certs"), "--quorum", "1")
	dirs := []string{at("serve")}
	var clients []*process
	for k := range 4 {
		dirs = append(dirs, at(fmt.Sprint("client", k)))
		clients = append(clients, start(t, "join", "https://"+addr, "--client", fmt.Sprint(k), "--tls", at("certs"),
			"--config", own, "--partition", "--state", dirs[k+1]))
	}
	for _, p := range append(clients, server) {
		p.ends(t)
	}
	if !bytes.Equal(together(t, dirs...), together(t, at("run"))) {
		t.Error("clients that joined learned something else")
	}
	if !strings.Contains(string(read(t, dirs[1], "agreed.json")), call.Calls[0].Numerics.Programs) {
		t.Error("the terms of a client have no digest of its graphs")
	}

	addr = busytest.Address(t, "127.0.0.1")
	head := start(t, "run", own, "--out", at("cluster"), "--cluster", "listen://"+addr, "--token", "secret")
	head.says(t, "start workers with")
	hand := start(t, "work", "nats://"+addr, "--token", "secret", "--set", "runtime.models="+dir, "--set",
		"runtime.cache="+at("cache"), "--set", "runtime.programs="+at("graphs"))
	head.ends(t)
	hand.Process.Kill() // it waits for another run
	if !t.Failed() && !bytes.Equal(together(t, at("cluster")), together(t, at("run"))) {
		t.Error("workers learned something else")
	}
	if _, text, code := callIn(dir, "run", own, "--set", "options.global_tokens=3", "--out",
		at("other")); code != failed || !strings.Contains(text, "runtime.programs") {
		t.Errorf("another experiment: exit %d, %s", code, text)
	}
}
