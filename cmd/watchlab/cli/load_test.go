package cli

import (
	"strings"
	"testing"
)

func TestLoadFlags(t *testing.T) {
	for title, tc := range map[string]struct {
		args []string
		want string
	}{
		"readers":          {[]string{"--readers", "-1"}, "--readers: -1 is negative"},
		"consumers":        {[]string{"--consumers", "-2"}, "--consumers: -2 is negative"},
		"procs":            {[]string{"--procs", "-2"}, "--procs: -2 is negative"},
		"cost":             {[]string{"--handler-cost", "-1ms"}, "--handler-cost: -1ms is negative"},
		"cost, no time":    {[]string{"--handler-cost", "10"}, "--handler-cost"},
		"stamps":           {[]string{"--stamps", "some"}, `--stamps: "some" is not one of none, sampled, all`},
		"queue's readers":  {[]string{"--readers", "1"}, "readers in the queue pipeline, which has no indexer (allowed: informer)"},
		"paced stamps":     {[]string{"--stamps", "none", "--pace", "max,500"}, "stamps none at a pace"},
		"stalled, bounded": {[]string{"--stalled", "--capacity", "5"}, "a stalled consumer and capacity 5"},
		"stalled, paced":   {[]string{"--stalled", "--pace", "500"}, "a stalled consumer at a pace"},
		"nobody takes two": {[]string{"--consumers", "2", "--impl", "cond"}, "no variant lets several take at once"},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errs := call(t, with(small, tc.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q; want 2, nothing, one line with %q", code, out, errs, tc.want)
			}
		})
	}
	code, _, errs := call(t, "run", "--stalled")
	if code != exitUsage || !strings.Contains(errs, "--stalled: needs --family") {
		t.Errorf("quick: exit code %d, stderr %q", code, errs)
	}
	code, _, errs = call(t, "run", "--family", "deltafifo", "--readers", "1", "--source", "cluster")
	if code != exitUsage || !strings.Contains(errs, "--readers: needs --source memory or apiserver") {
		t.Errorf("live cluster: exit code %d, stderr %q", code, errs)
	}
}

// TestLoadRuns: each load option is played and labelled. With each of them a lost event is found.
func TestLoadRuns(t *testing.T) {
	for _, flags := range [][]string{
		{"--stalled"},
		{"--stamps", "none", "--procs", "1"},
		{"--handler-cost", "1us"},
		{"--pipeline", "informer", "--readers", "1"},
	} {
		code, out, errs := call(t, with(with(small, flags...), "--impl", "cond", "-o", "bench")...)
		if code != exitOK {
			t.Errorf("%v: exit code %d, stderr %q", flags, code, errs)
		}
		want := map[string]string{
			"--stalled": "/consumer=stalled", "--stamps": "/procs=1/stamps=none", "--handler-cost": "/handler=1µs", "--pipeline": "/readers=1",
		}[flags[0]]
		if !strings.Contains(out, want) {
			t.Errorf("%v: no %s in %q", flags, want, out)
		}
		if flags[0] == "--pipeline" {
			continue // A lost event takes ten seconds there.
		}
		code, _, errs = call(t, with(with(small, flags...), "--impl", lossy)...)
		if code != exitInvalid || !strings.Contains(errs, "invalid: lost") {
			t.Errorf("%v with %s: exit code %d, stderr %q", flags, lossy, code, errs)
		}
	}
}
