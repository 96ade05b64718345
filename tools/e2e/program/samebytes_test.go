package program

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// photos writes 3 classes of 13 training and 5 test images, which fill no batch, and a configuration for them.
func photos(t *testing.T, more string) (dir, conf string) {
	t.Helper()
	dir = t.TempDir()
	for class, name := range []string{"dog", "horse", "house"} {
		for i := range 18 {
			split := "train"
			if i >= 13 {
				split = "test"
			}
			datatest.Photo(t, filepath.Join(dir, "images", split, name, fmt.Sprint(i, ".jpg")), class, i)
		}
	}
	conf = filepath.Join(dir, "photos.yaml")
	text := "name: photos\nbackbones: [tiny-vit-b32, tiny-rn50]\ndata: {set: folder, root: " +
		filepath.Join(dir, "images") + "}\npartition: {kind: iid, clients: 2}\nmethod: promptfl\nwith: []\n" +
		"train: {rounds: 2, lr: 0.05}\n" + more
	filetest.Write(t, conf, text)
	return dir, conf
}

// Whatever the number of workers that compute the features, and the number of processes, whose caches are empty at
// first, the result has the same bytes.
func TestSameBytesWithFreshCaches(t *testing.T) {
	t.Parallel()
	dir, conf := photos(t, "")
	at := func(name string) string { return filepath.Join(dir, name) }
	fresh := func(name string, workers int) []string {
		return []string{"--set", "runtime.cache=" + at("cache-"+name), "--set", fmt.Sprint("runtime.workers=", workers)}
	}
	run := func(name string, workers int) []byte {
		mustRun(t, append([]string{"run", conf, "--out", at(name)}, fresh(name, workers)...)...)
		return together(t, at(name))
	}
	want := run("one", 1)
	for _, workers := range []int{2, 5} {
		if !bytes.Equal(run(fmt.Sprint(workers), workers), want) {
			t.Errorf("%d workers leave other prompts than one", workers)
		}
	}

	addr := busytest.Address(t, "127.0.0.1")
	head := start(t, append([]string{"run", conf, "--out", at("cluster"), "--cluster", "listen://" + addr, "--token",
		"secret"}, fresh("cluster", 3)...)...)
	head.says(t, "start workers with")
	var hands []*process
	for i, workers := range []int{1, 2} {
		hands = append(hands, start(t, append([]string{"work", "nats://" + addr, "--token", "secret", "--jobs", "1",
			"--set", "data.root=" + at("images")}, fresh(fmt.Sprint("hand", i), workers)...)...))
	}
	head.ends(t)
	for _, p := range hands { // they wait for another run
		p.Process.Kill()
	}
	if !t.Failed() && !bytes.Equal(together(t, at("cluster")), want) {
		t.Error("a cluster leaves other prompts than one process")
	}
	if strings.Contains(head.said(), "bytes are not promised") {
		t.Error("bytes are not promised among workers that compute alike")
	}

	mustRun(t, "certs", at("certs"), "--clients", "2")
	addr = busytest.Address(t, "127.0.0.1")
	server := start(t, "serve", conf, "--out", at("serve"), "--listen", addr, "--tls", at("certs"), "--quorum", "1")
	dirs := []string{at("serve")}
	var clients []*process
	for k, workers := range []int{2, 3} {
		state := at(fmt.Sprint("client", k))
		dirs = append(dirs, state)
		clients = append(clients, start(t, append([]string{"join", "https://" + addr, "--client", fmt.Sprint(k),
			"--tls", at("certs"), "--config", conf, "--partition", "--state", state},
			fresh(fmt.Sprint("client", k), workers)...)...))
	}
	server.ends(t)
	for _, p := range clients {
		p.ends(t)
	}
	if !t.Failed() && !bytes.Equal(together(t, dirs...), want) {
		t.Error("server and clients leave other prompts than one process")
	}
	if strings.Contains(server.said(), "bytes of this run are not promised") {
		t.Error("bytes are not promised among clients that compute alike")
	}
}

// A worker and a client with other last digits take part, and the program reports the difference.
func TestOtherNumerics(t *testing.T) {
	t.Parallel()
	dir, conf := photos(t, "")
	at := func(name string) string { return filepath.Join(dir, name) }
	cache := "runtime.cache=" + at("cache")
	addr := busytest.Address(t, "127.0.0.1")
	head := start(t, "run", conf, "--out", at("cluster"), "--cluster", "listen://"+addr, "--token", "secret", "--set",
		cache)
	head.says(t, "start workers with")
	hand := start(t, "work", "nats://"+addr, "--token", "secret", "--set", "data.root="+at("images"), "--set", cache,
		"--set", "runtime.prepack=false", "--set", "runtime.threads=2")
	head.ends(t)
	hand.Process.Kill() // it waits for another run
	said := head.said()
	goldentest.Contains(t, said, "the worker computes otherwise", "the bytes of this run are not promised",
		`threads: \"1\", \"2\"`, `prepack: \"true\", \"false\"`)

	mustRun(t, "certs", at("certs"), "--clients", "2")
	addr = busytest.Address(t, "127.0.0.1")
	server := start(t, "serve", conf, "--out", at("serve"), "--listen", addr, "--tls", at("certs"), "--quorum", "1")
	var clients []*process
	for k, threads := range []int{1, 2} {
		clients = append(clients, start(t, "join", "https://"+addr, "--client", fmt.Sprint(k), "--tls", at("certs"),
			"--config", conf, "--partition", "--state", at(fmt.Sprint("client", k)), "--set", cache, "--set",
			fmt.Sprint("runtime.threads=", threads)))
	}
	server.ends(t)
	for _, p := range clients {
		p.ends(t)
	}
	if !strings.Contains(server.said(), "two clients round differently") {
		t.Error("the server does not tell of clients that compute otherwise")
	}
}

// An image has the same probabilities alone and among others, for a method that reads features, for one whose prompt
// depends on the image, and for one with a prompt in the image tower.
func TestPredictAlone(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"promptfl", "cocoop", "fedvpt"} {
		dir, conf := photos(t, "runtime: {workers: 2}\n")
		at := func(name string) string { return filepath.Join(dir, name) }
		mustRun(t, "run", conf, "--set", "method="+method, "--set", "backbones=[tiny-vit-b32]", "--set",
			"train.rounds=1", "--set", "runtime.cache="+
				at("cache"), "--out", at("run"))
		var images []string
		for i := range 19 {
			images = append(images, at(fmt.Sprint(i, ".jpg")))
			datatest.Photo(t, images[i], i%3, 100+i)
		}
		predict := func(images ...string) []string {
			text := mustRun(t, append([]string{"predict", at("run"), "--client", "0", "--json"}, images...)...)
			return strings.Split(strings.TrimSpace(text), "\n")
		}
		all := predict(images...)
		if len(all) != len(images) {
			t.Fatalf("%d lines for %d images", len(all), len(images))
		}
		for _, i := range []int{0, 15, 16, 18} {
			if alone := predict(images[i]); len(alone) != 1 || alone[0] != all[i] {
				t.Errorf("%s: image %d alone\n%s\namong others\n%s", method, i, alone, all[i])
			}
		}
	}
}
