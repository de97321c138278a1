package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestStormList(t *testing.T) {
	code, out, errs := call(t, "storm", "list")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	for _, want := range []string{
		`nodeloss +1000 +110000 +1m0s +pods, nodes, leases +a part of the nodes is lost`,
		`leases +5000 +- +1m0s +leases +every node renews`,
		`recorded-gang +- +- +- +- +a recording`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line matches %q in\n%s", want, out)
		}
	}
	code, out, _ = call(t, "storm", "list", "-o", "json")
	var all []profileEntry
	if err := json.Unmarshal([]byte(out), &all); code != exitOK || err != nil || len(all) < 10 {
		t.Errorf("storm list -o json: exit code %d, %v, %d entries", code, err, len(all))
	}
}

func TestStormShow(t *testing.T) {
	code, out, errs := call(t, "storm", "show", "leases", "--nodes", "13000")
	if code != exitOK || errs != "" || !regexp.MustCompile(`(?m)^ +leases +13000 +78000 +0 +78000 +0 +1300 `).MatchString(out) ||
		!strings.Contains(out, "\nnodes: 13000\n") || strings.Contains(out, "jobSize") {
		t.Errorf("exit code %d, stderr %q: 13,000 nodes renew 1,300 leases a second:\n%s", code, errs, out)
	}
	code, out, errs = call(t, "storm", "show", "recorded-nodeloss")
	if code != exitOK || !regexp.MustCompile(`v1/pods +800 +1440 `).MatchString(out) {
		t.Errorf("exit code %d, stderr %q, stdout\n%s", code, errs, out)
	}
}

// TestRunStorms: run accepts each kind of storm name.
func TestRunStorms(t *testing.T) {
	for _, args := range [][]string{
		{"--storm", "nodeloss", "--nodes", "5", "--pipeline", "informer", "--source", "memory"},
		{"--storm", "hotkey", "--scale", "0.05", "--seed", "9", "--pace", "trace:1000x,max"},
		{"--storm", "recorded-nodeloss"},
		{"--storm", tiny, "--pace", "trace:100x,max"},
		{"--storm", "steady", "--nodes", "2", "--pods", "110", "--pipeline", "kubelet"},
	} {
		full := append([]string{"run", "--ignore-host", "--rounds", "1", "--events", "1000", "--impl", "cond", "-o", "bench"}, args...)
		code, out, errs := call(t, full...)
		if code != exitOK || errs != "" || !strings.Contains(out, "impl=cond") {
			t.Errorf("%v: exit code %d, stderr %q, stdout\n%s", args, code, errs, out)
		}
	}
}
