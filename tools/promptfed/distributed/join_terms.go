package distributed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	wrap "github.com/jedib0t/go-pretty/v6/text"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	netclient "promptfed/federation/net/client"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// joinTerm is one term of taking part in a run: a subject and its value.
type joinTerm struct {
	What string `json:"what"`
	Is   string `json:"is"`
}

// runTerms returns the terms that join and status show about the run and the protection of its clients.
func runTerms(f facts.Facts) []joinTerm {
	text := func(name string) string {
		x, _ := f.Find(name)
		return x.Text()
	}

	on := func(name string) bool {
		x, _ := f.Find(name)
		return facts.Requirement{Key: name}.Holds(x.Value)
	}

	method := text("method")
	if on("with") {
		method += " with " + text("with")
	}

	who := fmt.Sprintf("%s of %s clients each, drawn for every round", text("clients_per_round"), text("clients"))
	switch {
	case text("sampling") != "fixed":
		who = fmt.Sprintf("about %s of %s clients each, every client drawn independently", text("clients_per_round"),
			text("clients"))
	case text("clients_per_round") == text("clients"):
		who = "all " + text("clients") + " clients"
	}

	often := "in every round"
	if n := text("tests"); n != "1" {
		often = "every " + n + " rounds"
	}

	tests := often + ", of test and validation images: " + strings.Join(metrics.Titles(on("tests.confusion")), ", ")
	protection := []joinTerm{
		{"method", method},
		{"rounds", text("rounds") + ", with " + who},
		{"statistics before training", text("statistics")},
		{"sent beside parameters", text("extras")},
		{"sent after tests", tests},
		{"connection", map[bool]string{true: "TLS; both sides have certificates", false: insecure}[on("tls")]},
	}

	sums := "none: the server sees each upload and its loss"
	if on("shares_examples") {
		sums = "none: the server sees each upload, its loss and its number of examples"
	}

	if on("secure_aggregation") {
		sums = fmt.Sprintf("the server sees sums of %s clients or more (threshold %s), of uploads, losses and "+
			"weights; a single client that lies can move each number of the mean by up to %s",
			text("secure_aggregation.least"), text("secure_aggregation.threshold"), text("secure_aggregation.bound"))
	}

	noise := "none: parameters reveal something of the images that they were trained on"
	if on("dp") {
		noise = fmt.Sprintf("clip %s and noise %s by the %s, delta %s; tests and losses are not covered",
			text("dp.clip"), text("dp.noise"), text("dp.where"), text("dp.delta"))
		if !on("dp.secret") {
			noise = "none that protects: " + strings.TrimPrefix(seededNoise, "--insecure-dp: ")
		}
	}

	protection = append(protection, joinTerm{"secure aggregation", sums}, joinTerm{"differential privacy", noise})
	if on("dp") {
		protection = append(protection, joinTerm{"epsilon after all rounds", fmt.Sprintf("%s against those who see "+
			"the shared parameters; %s against those who also know who trained; %s against the "+
			"server", text("dp.epsilon"),
			text("dp.epsilon_unsampled"), text("dp.epsilon_server"))})
	}

	if on("dp.epsilon_local") {
		protection = append(protection, joinTerm{"epsilon of what stays here", text("dp.epsilon_local") +
			" after all rounds"})
	}

	return protection
}

// terms returns the terms of this client, and descriptions of its data, which stay on this machine and are not terms.
func (f joinFlags) terms(task *experiment.Task, facts facts.Facts, inv *netclient.Invitation) (terms, own []joinTerm) {
	shares, keeps := task.Shares()
	var leaves, stays []string
	bytes := 0
	for _, x := range shares {
		bytes += 4 * tensor.Size(x.Shape)
		leaves = append(leaves, fmt.Sprint(x.Name, " ", x.Shape))
	}

	for _, x := range keeps {
		stays = append(stays, x.Name)
	}

	up := "nothing"
	if len(leaves) > 0 {
		up = fmt.Sprintf("%s: %d bytes a round, before secure aggregation", strings.Join(leaves, ", "), bytes)
	}

	once := "names of classes, backbone and domain, digests of the backbone"
	if task.Protocol.SharesExamples() {
		once += ", number of training examples"
	}

	terms = append([]joinTerm{{"run", "that of " + inv.Server()}}, runTerms(facts)...)
	terms = append(terms, joinTerm{"parameters that leave", up}, joinTerm{"sent when joining", once},
		joinTerm{"stays here", strings.Join(append([]string{"images, their labels"}, stays...), ", ")})
	if task.Programs != nil {
		terms = append(terms, joinTerm{"graphs", "those of runtime.programs, SHA-256 " + task.Programs.Digest})
	}

	train, test, without := task.Counts()
	own = []joinTerm{{"data here", fmt.Sprintf("%d training and %d test images of %d classes", train, test,
		len(task.Experiment.Classes)-len(without))}}
	if len(without) > 0 {
		own = append(own, joinTerm{"classes without images here", strings.Join(without, ", ")})
	}

	return terms, own
}

// joinTable returns a table of terms, one per row.
func joinTable(title string, terms []joinTerm) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.SetTitle(title)
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, WidthMax: 90, WidthMaxEnforcer: wrap.WrapSoft}})
	for _, x := range terms {
		t.AppendRow(table.Row{x.What, x.Is})
	}

	return t.Render()
}

// consent decides whether this client takes part under terms. It accepts terms that the folder of the client records,
// all terms if Yes is set, and terms to which a user agrees at a terminal. Without a terminal, as under a service
// manager, it records and accepts the first terms, and needs Yes for changed terms.
type consent struct {
	Path     string // file with the recorded terms
	Yes      bool
	Check    bool // nothing is asked or recorded
	Terminal bool
	In       io.Reader
	Out      io.Writer
}

// agreedFile is the file in the folder of a client that records the accepted terms.
const agreedFile = "agreed.json"

func (f joinFlags) consent() consent {
	return consent{Path: filepath.Join(f.state, agreedFile), Yes: f.yes, Check: f.differences != nil,
		Terminal: onTerminal(os.Stdin) && onTerminal(os.Stdout), In: os.Stdin, Out: os.Stdout}
}

// take prints the terms and returns an error unless they are accepted.
func (c consent) take(ctx context.Context, terms, own []joinTerm) error {
	var before []joinTerm
	if _, err := atomicfile.ReadJSON(c.Path, &before); err != nil {
		return fmt.Errorf("%w; remove it to be asked again", err)
	}

	fmt.Fprintln(c.Out, joinTable("what will run, what leaves this machine, and what protects it", slices.Concat(terms,
		own)))
	if slices.Equal(before, terms) {
		return nil
	}

	if len(before) > 0 {
		changed := changedTerms(before, terms)
		if !c.Yes && !c.Terminal {
			return fmt.Errorf("the terms have changed since they were agreed to: %s; read them and add --yes", changed)
		}
		fmt.Fprintln(c.Out, "changed since they were agreed to:", changed)
	}

	switch {
	case c.Check:
		return nil
	case c.Yes:
	case c.Terminal:
		fmt.Fprint(c.Out, "take part? [y/N] ")
		if err := readYes(ctx, c.In); err != nil {
			return err
		}
	default:
		fmt.Fprintf(c.Out, "there is no terminal to ask at: these terms are recorded in %s, and others will need "+
			"--yes\n", c.Path)
	}

	return atomicfile.WritePrivate(c.Path, atomicfile.JSON(terms, ""))
}

// changedTerms describes the differences between two lists of terms.
func changedTerms(before, now []joinTerm) string {
	var out []string
	for _, x := range now {
		i := slices.IndexFunc(before, func(y joinTerm) bool { return y.What == x.What })
		switch {
		case i < 0:
			out = append(out, fmt.Sprintf("%s is %s", x.What, x.Is))
		case before[i] != x:
			out = append(out, fmt.Sprintf("%s was %s, is %s", x.What, before[i].Is, x.Is))
		}
	}

	for _, x := range before {
		if !slices.ContainsFunc(now, func(y joinTerm) bool { return y.What == x.What }) {
			out = append(out, fmt.Sprintf("%s was %s", x.What, x.Is))
		}
	}

	return strings.Join(out, "; ")
}

// errDeclined is the error of a client whose user declines the terms.
var errDeclined = errors.New("this client does not take part; the server knows only its number")

// readYes reads an answer and returns an error unless it is yes.
func readYes(ctx context.Context, in io.Reader) error {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-answer:
		if a != "y" && a != "yes" {
			return errDeclined
		}
		return nil
	}
}
