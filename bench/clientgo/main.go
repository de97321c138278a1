// The command clientgo compares informers of several minors of client-go, with their feature
// gates, in one run of interleaved rounds. It plays each round in a program that is built with
// that minor (package player). All else that the programs contain is equal.
//
//	make versions
//	go run . -baselines clientgo@0.33/realfifo,clientgo@0.37/realfifo-unlocked -rounds 6 -out DIR
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/clientgo/round"
	"watchlab/bench/lab"
)

// requests are the rounds by storm; list has only an initial list.
var requests = []struct {
	storm string
	round.Request
}{
	{"rollout", round.Request{Storm: "rollout", Pods: 5_000, Events: 50_000}},
	{"nodeloss", round.Request{Storm: "nodeloss", Pods: 5_000, Events: 50_000}},
	{"hotkey", round.Request{Storm: "hotkey", Pods: 5_000, Events: 50_000}},
	{"list", round.Request{Storm: "steady", Pods: 20_000}},
}

const programRoot = "../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := command(ctx)
	stop()
	os.Exit(code)
}

func command(ctx context.Context) (code int) {
	names := flag.String("baselines", "", "`names` of client-go's minors with their queues (default all of baseline.go)")
	rounds := flag.Int("rounds", 6, "interleaved rounds; below 4 no difference is testable")
	out := flag.String("out", "", "results `folder` to create")
	flag.Parse()
	p, err := newPlan(*names)
	switch {
	case err != nil:
	case *out == "":
		err = errors.New("-out: a results folder is needed")
	case *rounds < 1:
		err = fmt.Errorf("-rounds: %d (want 1 or more)", *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := p.run(ctx, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// plan is the comparison of baselines, one for each storm.
type plan struct {
	comparisons []lab.Comparison
	plays       map[string]play // by the cell's name
}

// play is a round with its baseline.
type play struct {
	baseline
	round.Request
}

// newPlan plans the comparisons. All baselines guarantee the order of each key; that is what is checked.
func newPlan(names string) (*plan, error) {
	all, err := baselinesOf(names)
	if err != nil {
		return nil, fmt.Errorf("-baselines: %w", err)
	}
	p := &plan{plays: map[string]play{}}
	for _, r := range requests {
		c := lab.Comparison{Family: "deltafifo", Title: "informers of client-go's minors, storm " + r.storm}
		for i, b := range all {
			cl := lab.Cell{
				Name:       "Informer",
				Labels:     lab.Labels{{Key: "impl", Value: b.label()}, {Key: "storm", Value: r.storm}, {Key: "rate", Value: lab.Unpaced}},
				Guarantees: "order per key", Class: "order per key", Baseline: i == 0,
				New: func() (lab.Workload, error) { return nil, errors.New("played by a program") },
			}
			c.Cells = append(c.Cells, cl)
			p.plays[cl.BenchName()] = play{b, r.Request}
		}
		p.comparisons = append(p.comparisons, c)
	}
	return p, nil
}

// run builds the programs, plays the rounds and writes the results folder.
func (p *plan) run(ctx context.Context, rounds int, dir string) error {
	programs := map[string]string{}
	for _, is := range p.plays {
		name := is.program()
		if programs[name] == "" {
			path, err := output(ctx, filepath.Join(programRoot, "scripts/program.sh"), name)
			if err != nil {
				return err
			}
			programs[name] = path
		}
	}
	revision, err := output(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	if err != nil {
		return err
	}
	commit, dirty := strings.CutSuffix(revision, "-dirty")
	o, err := lab.Run(ctx, p.comparisons, lab.Options{
		Name: "versions", Rounds: rounds, Seed: 1, Dir: dir, Args: os.Args[1:], Build: lab.Build{Commit: commit, Dirty: dirty},
		PlayInFreshProcess: func(ctx context.Context, name string) (cell.Result, error) {
			is := p.plays[name]
			return is.playIn(ctx, programs[is.program()])
		},
		Progress: func(at lab.Progress) { fmt.Fprintf(os.Stderr, "\r%d of %d plays", at.Done, at.Total) },
	})
	fmt.Fprintln(os.Stderr)
	if o == nil {
		return err
	}
	for _, f := range o.Failed() {
		err = errors.Join(err, errors.New(f))
	}
	return err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// playIn plays once in a new process of the program.
func (p play) playIn(ctx context.Context, program string) (cell.Result, error) {
	in, err := json.Marshal(p.Request)
	if err != nil {
		return cell.Result{}, err
	}
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), p.env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &stderr
	if err := cmd.Run(); err != nil {
		return cell.Result{}, fmt.Errorf("%s: %w: %s", p.name, err, stderr.String())
	}
	return lab.ReadResult(&out)
}
