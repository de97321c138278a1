package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"watchlab/bench/fleet"
	"watchlab/bench/report"
)

// fleetJSON writes a state as JSON.
func fleetJSON(w io.Writer, s fleet.State) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}

// fleetTable writes a state as a table.
func fleetTable(w io.Writer, s fleet.State) error {
	fmt.Fprintf(w, "run %s, mode %s: %s\n", s.Ref, s.Plan.Mode, fleetLine(s))
	if s.Failure != "" {
		fmt.Fprintf(w, "its Job failed: %s\n", s.Failure)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SHARD\tPOD\tNODE\tPHASE\tFAILURES\tWHERE\tDELIVERED")
	for _, sh := range s.Pods {
		phase := string(sh.Phase)
		if sh.Reason != "" {
			phase += " (" + sh.Reason + ")"
		}
		fmt.Fprintln(tw, strings.Join([]string{
			shardName(sh), dash(sh.Name), dash(sh.Node), phase, strconv.Itoa(sh.Failures), dash(sh.Progress), delivered(s, sh),
		}, "\t"))
	}
	return tw.Flush()
}

// shardName is a shard as a reader finds it again: by its index.
func shardName(sh fleet.Pod) string {
	if sh.Writer {
		return "writer " + strconv.Itoa(sh.Index)
	}
	return strconv.Itoa(sh.Index)
}

// delivered says where a shard's result is.
func delivered(s fleet.State, sh fleet.Pod) string {
	switch {
	case sh.Writer:
		return "-"
	case s.Plan.Upload != "configmap":
		return "by " + s.Plan.Upload
	}
	return yesNo(sh.Uploaded)
}

// fleetLine says in a line how far a run is.
func fleetLine(s fleet.State) string {
	var parts []string
	for _, p := range []fleet.Phase{fleet.Absent, fleet.Waiting, fleet.Running, fleet.Failed, fleet.GivenUp, fleet.Succeeded} {
		if n := s.Count(p); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p))
		}
	}
	line := fmt.Sprintf("%s: %s", report.Plural(s.Plan.Pods, "shard"), strings.Join(parts, ", "))
	if s.Plan.Upload == "configmap" {
		line += "; " + report.Plural(s.Uploaded(), "result") + " delivered"
	}
	return line
}

// follower tells in lines how a run gets on: one for each change of the whole, one for
// each pod that failed, and one for each reason why pods wait.
type follower struct {
	w        io.Writer
	line     string
	failures map[string]int
	waits    map[string]bool
}

func (f *follower) show(s fleet.State) {
	if f.failures == nil {
		f.failures, f.waits = map[string]int{}, map[string]bool{}
	}
	for _, sh := range s.Pods {
		name := shardName(sh)
		if sh.Phase == fleet.Waiting && sh.Reason != "" && !f.waits[sh.Reason] {
			f.waits[sh.Reason] = true
			fmt.Fprintf(f.w, "watchlab: shard %s waits: %s\n", name, sh.Reason)
		}
		if sh.Failures <= f.failures[name] {
			continue
		}
		f.failures[name] = sh.Failures
		why := ""
		if sh.Reason != "" {
			why = ": " + sh.Reason
		}
		what := "its pod " + sh.Name + " failed"
		switch sh.Phase {
		case fleet.GivenUp:
			what += ", and it is given up"
		case fleet.Failed:
			what += ", and it is tried again"
		default:
			what = fmt.Sprintf("it has failed %d times, and pod %s tries again", sh.Failures, sh.Name)
		}
		fmt.Fprintf(f.w, "watchlab: shard %s: %s%s\n", name, what, why)
	}
	if line := fleetLine(s); line != f.line {
		f.line = line
		fmt.Fprintf(f.w, "watchlab: %s\n", line)
	}
}
