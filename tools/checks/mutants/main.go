package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/cover"
)

// equivalent lists the faults that change nothing that a test can see, one a line: package, file, function, old and
// new code, and in parentheses at the end the reason.
//
//go:embed equivalent.txt
var equivalent string

func main() {
	count := flag.Int("count", 24, "faults of each package")
	seed := flag.Uint64("seed", 1, "of the draw")
	list := flag.Bool("list", false, "list the drawn faults and run no test")
	flag.Parse()
	failed := false
	for _, name := range flag.Args() {
		if ok, err := check(name, *count, *seed, *list); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			failed = true
		} else if !ok {
			failed = true
		}
	}

	if failed || flag.NArg() == 0 {
		os.Exit(1)
	}
}

// A target is a package whose tests run.
type target struct {
	ImportPath, Dir   string
	GoFiles, CgoFiles []string
	TestGoFiles       []string
	XTestGoFiles      []string
	blocks            map[string][]cover.ProfileBlock // by file
	limit             time.Duration                   // of a test run
	scratch           string
}

// load reads a package and its sites.
func load(name string) (target, []site, error) {
	var loaded target
	out, err := exec.Command("go", "list", "-json", name).Output()
	if err != nil {
		return loaded, nil, fmt.Errorf("go list %s: %w", name, err)
	}

	if err := json.Unmarshal(out, &loaded); err != nil {
		return loaded, nil, err
	}

	var all []site
	for _, f := range append(loaded.GoFiles, loaded.CgoFiles...) {
		source, err := os.ReadFile(filepath.Join(loaded.Dir, f))
		if err != nil {
			return loaded, nil, err
		}
		sites, err := sitesOf(f, source)
		if err != nil {
			return loaded, nil, err
		}
		all = append(all, sites...)
	}

	return loaded, all, nil
}

// check plants faults into a package and reports whether its tests find nine of ten.
func check(name string, count int, seed uint64, list bool) (bool, error) {
	target, all, err := load(name)
	if err != nil {
		return false, err
	}

	h := fnv.New64a()
	h.Write([]byte(target.ImportPath))
	draw := rand.New(rand.NewPCG(seed, h.Sum64()))
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if list {
		for _, s := range all[:min(count, len(all))] {
			fmt.Println(target.name(s))
		}
		return true, nil
	}

	if target.scratch, err = os.MkdirTemp("", "mutants"); err != nil {
		return false, err
	}
	defer os.RemoveAll(target.scratch)

	if err := target.measure(); err != nil {
		return false, err
	}

	counts := map[string]int{}
	for planted := 0; planted < min(count, len(all)-counts[unbuilt]); {
		s := all[planted+counts[unbuilt]]
		verdict, err := target.try(s)
		if err != nil {
			return false, err
		}
		counts[verdict]++
		if verdict == unbuilt {
			continue
		}
		planted++
		fmt.Printf("%-11s %s\n", verdict, target.name(s))
	}

	missed := counts[notFound] + counts[notReached]
	fmt.Printf("%s: the tests find %d of %d faults, beside %d equivalent ones\n", target.ImportPath, counts[found],
		counts[found]+missed, counts[equal])
	return counts[found] >= 9*missed, nil
}

func (t *target) name(s site) string {
	return fmt.Sprintf("%s/%s:%d %s: %s -> %s", t.ImportPath, s.file, s.line, s.function, s.old, s.fresh)
}

// measure runs the tests without a fault. It keeps which lines they reach and how long they may take.
func (t *target) measure() error {
	if len(t.TestGoFiles)+len(t.XTestGoFiles) == 0 {
		return nil
	}

	profile := filepath.Join(t.scratch, "cover")
	run := []string{"test", "-vet=off", "-count=1", t.ImportPath}
	began := time.Now()
	if exec.Command("go", slices.Insert(run, 1, "-coverprofile", profile)...).Run() != nil {
		// processes of a test may fail for writing coverage alone
		if out, err := exec.Command("go", run...).CombinedOutput(); err != nil {
			return fmt.Errorf("the tests of %s fail without a fault: %s", t.ImportPath, out)
		}
	}

	t.limit = 3*time.Since(began) + 30*time.Second
	list, err := cover.ParseProfiles(profile)
	t.blocks = map[string][]cover.ProfileBlock{}
	for _, p := range list {
		t.blocks[path.Base(p.FileName)] = p.Blocks
	}

	return err
}

// reaches reports whether a test runs the place of a site. A place in no block, such as a case's list, is reached.
func (t *target) reaches(s site) bool {
	for _, b := range t.blocks[s.file] {
		if cmp.Or(cmp.Compare(b.StartLine, s.line), cmp.Compare(b.StartCol, s.col)) <= 0 &&
			cmp.Or(cmp.Compare(s.line, b.EndLine), cmp.Compare(s.col, b.EndCol)) <= 0 {
			return b.Count > 0
		}
	}
	return t.blocks != nil || s.function == ""
}

// What the tests say of a fault.
const (
	found      = "found"
	notFound   = "not found"
	notReached = "not reached" // no test runs its line
	equal      = "equivalent"  // equivalent.txt names it
	unbuilt    = "unbuilt"     // it does not compile, so it does not count
)

// try runs the tests with a fault.
func (t *target) try(place site) (string, error) {
	file := filepath.Join(t.Dir, place.file)
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}

	fault := filepath.Join(t.scratch, "fault.go")
	text := slices.Concat(source[:place.start], []byte(place.by), source[place.end:])
	if err := os.WriteFile(fault, text, 0o600); err != nil {
		return "", err
	}

	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: fault}})
	if err != nil {
		return "", err
	}

	replaced := filepath.Join(t.scratch, "overlay.json")
	if err := os.WriteFile(replaced, overlay, 0o600); err != nil {
		return "", err
	}

	if strings.Contains(equivalent, "\n"+t.ImportPath+"/"+place.key()+" (") {
		return equal, nil
	}

	if !t.reaches(place) {
		if exec.Command("go", "build", "-o", os.DevNull, "-overlay", replaced, t.ImportPath).Run() != nil {
			return unbuilt, nil
		}
		return notReached, nil
	}

	out, err := exec.Command("go", "test", "-overlay", replaced, "-vet=off", "-count=1", "-failfast", "-timeout",
		t.limit.String(), t.ImportPath).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return notFound, nil
	case !errors.As(err, &exit):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")):
		return unbuilt, nil
	}

	return found, nil
}
