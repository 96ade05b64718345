package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"promptfed/runtime/tensor"
)

// program is an opponent's program in Python.
type program struct {
	script string // from the top of a checkout
	needs  string // packages, for pip
}

var opponents = map[string]program{
	"pytorch": {"tools/golden/step_torch.py", "torch numpy"},
	"flower":  {"tools/golden/sim_flower.py", "torch 'flwr[simulation]'"},
	"pfl":     {"tools/golden/sim_pfl.py", "'pfl[pytorch]'"},
}

// opponent is a process of a program, which reads commands line by line and answers each with a line.
type opponent struct {
	Version string `json:"version"`
	How     string `json:"how"`    // the choices of a simulator, for people
	Device  string `json:"device"` // of PyTorch

	program
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
	dead   bool // it answers no more

	workload string   // of PyTorch, the last one that it opened
	forms    []string // those prepared since
}

// startOpponent starts a program with arguments. The working folder must be a checkout of the source.
func startOpponent(ctx context.Context, what program, python string, args ...string) (*opponent, error) {
	if _, err := os.Stat(what.script); err != nil {
		return nil, fmt.Errorf("%w: run promptfed bench --against in a checkout of promptfed", err)
	}

	opponent := &opponent{program: what, cmd: exec.CommandContext(ctx, python, append([]string{what.script},
		args...)...)}
	opponent.cmd.Stderr = &opponent.stderr
	opponent.cmd.Cancel = func() error {
		for _, pid := range descendants(opponent.cmd.Process.Pid) {
			if child, err := os.FindProcess(pid); err == nil {
				child.Kill()
			}
		}
		return nil
	}

	out, err := opponent.cmd.StdoutPipe()
	if err == nil {
		opponent.in, err = opponent.cmd.StdinPipe()
	}

	if err == nil {
		err = opponent.cmd.Start()
	}

	if err != nil {
		return nil, fmt.Errorf("--python %s: %w", python, err)
	}

	opponent.out = bufio.NewReader(out)
	line, err := opponent.answer()
	if err == nil {
		err = json.Unmarshal([]byte(line), opponent)
	}

	if err != nil {
		opponent.close()
		return nil, err
	}

	return opponent, nil
}

// answer reads the next line from the process.
func (p *opponent) answer() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.dead = true
		p.cmd.Wait()
		last := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		return "", fmt.Errorf("%s: %s; it needs: %s -m pip install %s", strings.Join(p.cmd.Args[:2], " "),
			last[len(last)-1], p.cmd.Args[0], p.needs)
	}

	return line, nil
}

// ask sends one command to the process and returns what its answer says behind "done". The error says what is behind
// "failed".
func (p *opponent) ask(what string) (string, error) {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.dead = true
		return "", err
	}

	line, err := p.answer()
	if err != nil {
		return "", err
	}

	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if word == "failed" {
		return "", errors.New(rest)
	}

	return rest, nil
}

// within is ask with a limit, after which it ends the process.
func (p *opponent) within(limit time.Duration, what string) (string, error) {
	late := time.AfterFunc(limit, func() { p.cmd.Cancel() })
	answer, err := p.ask(what)
	if !late.Stop() {
		p.dead = true
		err = fmt.Errorf("not within %.0f s", limit.Seconds())
	}
	return answer, err
}

// memory returns the memory of the process and of all that it started, in bytes.
func (p *opponent) memory() int64 { return shareOf(descendants(p.cmd.Process.Pid)...) }

func (p *opponent) rounds(n int) error {
	_, err := p.ask(fmt.Sprint("rounds ", n))
	return err
}

// tensor returns a tensor of float32 that the process writes to a file.
func (p *opponent) tensor(what, file string, shape []int) (*tensor.Tensor, error) {
	if _, err := p.ask(what + " " + file); err != nil {
		return nil, err
	}

	raw, err := os.ReadFile(file)
	t := tensor.New(shape...)
	if err == nil {
		_, err = binary.Decode(raw, binary.LittleEndian, t.Data)
	}

	if err != nil {
		return nil, fmt.Errorf("%s is not a %s %v: %w", file, what, shape, err)
	}

	return t, nil
}

func (p *opponent) close() error {
	p.in.Close()
	p.cmd.Wait()
	return nil
}
