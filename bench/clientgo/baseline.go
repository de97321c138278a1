package main

import (
	"fmt"
	"slices"
	"strings"
)

// baseline is a shared informer of client-go.
type baseline struct {
	name  string // clientgo@MINOR/QUEUE
	gates string // that the minor can switch (client-go, features/known_features.go)
}

// baselines change one thing at a time, the code of a minor or a gate, up to the newest minor's default. Gates that are
// not named here are off by default before v0.35, locked on since v0.36, or unknown.
var baselines = []baseline{
	{"clientgo@0.31/deltafifo", ""},
	{"clientgo@0.32/deltafifo", ""},
	{"clientgo@0.33/deltafifo", "InOrderInformers=false"},
	{"clientgo@0.33/realfifo", "InOrderInformers=true"},
	{"clientgo@0.34/realfifo", "InOrderInformers=true"},
	{"clientgo@0.35/realfifo-list", "WatchListClient=false InOrderInformers=true InOrderInformersBatchProcess=false"},
	{"clientgo@0.35/realfifo", "WatchListClient=true InOrderInformers=true InOrderInformersBatchProcess=false"},
	{"clientgo@0.35/realfifo-batch", "WatchListClient=true InOrderInformers=true InOrderInformersBatchProcess=true"},
	{"clientgo@0.36/realfifo-batch", batch + "AtomicFIFO=false UnlockWhileProcessingFIFO=false"},
	{"clientgo@0.36/realfifo-unlocked", batch + "AtomicFIFO=true UnlockWhileProcessingFIFO=true"},
	{"clientgo@0.37/realfifo-unlocked", batch + "AtomicFIFO=true UnlockWhileProcessingFIFO=true"},
}

const batch = "WatchListClient=true InOrderInformersBatchProcess=true "

// baselinesOf returns the baselines of some names, separated by commas; all for none.
func baselinesOf(names string) (out []baseline, err error) {
	if names == "" {
		return baselines, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(baselines, func(b baseline) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown baseline %q (baseline.go has them)", name)
		}
		out = append(out, baselines[i])
	}
	return out, nil
}

// program is the name for scripts/program.sh.
func (b baseline) program() string {
	name, _, _ := strings.Cut(b.name, "/")
	return name
}

// label is the name in a benchmark's name, which has no slash.
func (b baseline) label() string { return strings.ReplaceAll(b.name, "/", ":") }

// env returns the gates as environment variables (client-go, features/envvar.go).
func (b baseline) env() (env []string) {
	for _, gate := range strings.Fields(b.gates) {
		env = append(env, "KUBE_FEATURE_"+gate)
	}
	return env
}
