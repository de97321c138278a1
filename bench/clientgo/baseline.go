package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ours is the program with this project's informer; its variants are the queues of impls/deltafifo.
const ours = "ours"

// baseline is a client-go with its feature gates, such as clientgo@0.33/realfifo, or a variant of
// ours, such as clientgo@ours/ring.
type baseline struct {
	minor string // 0.33, or ours
	queue string // of the informer: a name in queues; a variant of ours
}

// queues are the informers of client-go by name, with their gates. Gates that are not named here are
// off where a minor can switch them.
var queues = map[string][]string{
	"deltafifo":         {watchList},
	"realfifo-list":     {inOrder}, // The Reflector lists.
	"realfifo":          {watchList, inOrder},
	"realfifo-batch":    {watchList, inOrder, batch},
	"realfifo-atomic":   {watchList, inOrder, batch, atomic},
	"realfifo-unlocked": {watchList, inOrder, batch, atomic, unlock},
}

const (
	watchList = "WatchListClient"
	inOrder   = "InOrderInformers"
	batch     = "InOrderInformersBatchProcess"
	atomic    = "AtomicFIFO"
	unlock    = "UnlockWhileProcessingFIFO"
)

// gates are the feature gates of informers with the minors that they are switched in
// (client-go, features/known_features.go).
var gates = []struct {
	name        string
	since, last int
}{
	{watchList, 35, newest}, // Off by default before.
	{inOrder, 33, 35},       // Locked on after.
	{batch, 35, newest},
	{atomic, 36, newest},
	{unlock, 36, newest},
}

const oldest, newest = 31, 37 // minors; newest is that of go.mod

var errBaseline = errors.New("unknown baseline")

// parseBaseline reads clientgo@MINOR/QUEUE. The error wraps errBaseline.
func parseBaseline(name string) (b baseline, err error) {
	refuse := func(format string, args ...any) (baseline, error) {
		return baseline{}, fmt.Errorf("%w %q: %s", errBaseline, name, fmt.Sprintf(format, args...))
	}
	rest, isOne := strings.CutPrefix(name, "clientgo@")
	minor, queue, hasQueue := strings.Cut(rest, "/")
	if !isOne || !hasQueue || queue == "" {
		return refuse("want clientgo@MINOR/QUEUE")
	}
	b = baseline{minor, queue}
	if minor == ours {
		return b, nil
	}
	number, err := strconv.Atoi(strings.TrimPrefix(minor, "0."))
	if err != nil || minor != fmt.Sprintf("0.%d", number) || number < oldest || number > newest {
		return refuse("minors are 0.%d to 0.%d, and %s", oldest, newest, ours)
	}
	needs, known := queues[queue]
	if !known {
		return refuse("queues are %s", strings.Join(slices.Sorted(maps.Keys(queues)), ", "))
	}
	for _, g := range gates {
		needed := slices.Contains(needs, g.name)
		switch {
		case needed && number < g.since && g.name != watchList:
			return refuse("v%s has no gate %s", minor, g.name)
		case !needed && number > g.last:
			return refuse("v%s has gate %s locked on", minor, g.name)
		}
	}
	return b, nil
}

// program is the name for scripts/program.sh.
func (b baseline) program() string { return "clientgo@" + b.minor }

func (b baseline) String() string { return b.program() + "/" + b.queue }

// label is the name in a benchmark's name, which has no slash.
func (b baseline) label() string { return strings.ReplaceAll(b.String(), "/", ":") }

// env returns the gates as environment variables (client-go, features/envvar.go).
func (b baseline) env() (env []string) {
	number, err := strconv.Atoi(strings.TrimPrefix(b.minor, "0."))
	if err != nil {
		return nil // ours
	}
	for _, g := range gates {
		if number >= g.since && number <= g.last {
			env = append(env, fmt.Sprintf("KUBE_FEATURE_%s=%t", g.name, slices.Contains(queues[b.queue], g.name)))
		}
	}
	return env
}

// impl is the variant that the program plays; empty for client-go.
func (b baseline) impl() string {
	if b.minor == ours {
		return b.queue
	}
	return ""
}
