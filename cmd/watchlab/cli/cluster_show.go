package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/chart"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
)

func fleetTable(w io.Writer, s fleet.State) error {
	fmt.Fprintf(w, "run %s, mode %s: %s\n", s.Ref, s.Plan.Mode, fleetLine(s))
	if s.Failure != "" {
		fmt.Fprintf(w, "the Job failed: %s\n", s.Failure)
	}
	fmt.Fprintln(w)
	t := chart.NewTable("", []string{"INDEX", "POD", "NODE", "PHASE", "FAILURES", "PROGRESS", "UPLOADED"})
	for _, p := range s.Pods {
		t.Add(indexName(p), dash(p.Name), dash(p.Node), phaseOf(p), strconv.Itoa(p.Failures), dash(p.Progress), uploaded(p))
	}
	return t.Text(w)
}

func phaseOf(p fleet.Pod) string {
	if p.Reason == "" {
		return string(p.Phase)
	}
	return string(p.Phase) + " (" + p.Reason + ")"
}

func podName(p fleet.Pod) string {
	if p.Plays() {
		return "pod " + indexName(p)
	}
	return indexName(p)
}

func indexName(p fleet.Pod) string {
	if p.Writer {
		return "writer " + strconv.Itoa(p.Index)
	}
	return cmp.Or(p.Deployment, strconv.Itoa(p.Index))
}

func uploaded(p fleet.Pod) string {
	if !p.Plays() {
		return "-"
	}
	return yesNo(p.Uploaded)
}

func fleetLine(s fleet.State) string {
	var parts []string
	for _, phase := range []fleet.Phase{fleet.Absent, fleet.Waiting, fleet.Running, fleet.Failed, fleet.GivenUp, fleet.Succeeded} {
		if n := s.Count(phase); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	return fmt.Sprintf("%s: %s; %s uploaded", lab.Plural(s.Plan.Pods, "pod"), strings.Join(parts, ", "), lab.Plural(s.Uploaded(), "result"))
}

// follower prints changes of the run, failed pods, each reason of waiting pods once, and after
// quietTime without a line the progress of a pod.
type follower struct {
	w        io.Writer
	now      func() time.Time
	last     time.Time // of the last line
	line     string
	failures map[string]int
	waits    map[string]bool
	remedy   func(fleet.Pod) string // of a waiting pod
}

func (f *follower) show(s fleet.State) {
	if f.failures == nil {
		f.failures, f.waits = map[string]int{}, map[string]bool{}
	}
	now := f.now()
	for _, p := range s.Pods {
		name := podName(p)
		if p.Phase == fleet.Running && p.Progress != "" && now.Sub(f.last) >= quietTime {
			f.last = now
			fmt.Fprintf(f.w, "watchlab: %s: %s\n", name, p.Progress)
		}
		if p.Phase == fleet.Waiting && p.Reason != "" {
			f.wait(p)
		}
		if p.Failures <= f.failures[name] {
			continue
		}
		f.failures[name] = p.Failures
		why := ""
		if p.Reason != "" {
			why = ": " + p.Reason
		}
		what := p.Name + " failed"
		switch p.Phase {
		case fleet.GivenUp:
			what += ", no retry left"
		case fleet.Failed: // The Job decides about a retry.
		default:
			what = fmt.Sprintf("%d failures, %s retries", p.Failures, p.Name)
		}
		fmt.Fprintf(f.w, "watchlab: %s: %s%s\n", name, what, why)
	}
	if line := fleetLine(s); line != f.line {
		f.line, f.last = line, now
		fmt.Fprintf(f.w, "watchlab: %s\n", line)
	}
}

// wait prints what a pod waits for and what helps, once for all pods of the Jobs.
func (f *follower) wait(p fleet.Pod) {
	remedy := f.remedy(p)
	if key := p.Deployment + remedy; !f.waits[key] {
		f.waits[key] = true
		what := p.Message
		if noImage(p) {
			what = p.Image // The message says so at length.
		}
		fmt.Fprintf(f.w, "watchlab: %s waits: %s: %s; %s\n", podName(p), p.Reason, what, remedy)
	}
}
