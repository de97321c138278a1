package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrShares is wrapped by the errors of [Merge] for shares that cannot be merged.
var ErrShares = errors.New("the shares do not form one run")

// MergeOptions configure a merge.
type MergeOptions struct {
	Name string   // of the run; empty: that of the shares
	Args []string // for env.json; nil: those of the shares
	// Experiment, if not nil, is the Experiment of the merged outcome ([Options]). The
	// experiments of the shares are not copied: each describes only its share.
	Experiment json.RawMessage
}

// Merged describes the shares of a merged outcome.
type Merged struct {
	Of      int           `json:"of"`                // number of shares
	Shares  []MergedShare `json:"shares"`            // the merged shares, by index
	Missing []int         `json:"missing,omitempty"` // indexes of the missing shares
}

// String returns "4 shares", or "3 of 4 shares" if one is missing.
func (m Merged) String() string {
	n := Plural(m.Of, "share")
	if len(m.Missing) > 0 {
		n = fmt.Sprintf("%d of %s", m.Of-len(m.Missing), n)
	}
	return n
}

// MergedShare describes one share of a [Merged] outcome.
type MergedShare struct {
	Index       int           `json:"index"`                 // of the share, from 0
	Pod         string        `json:"pod,omitempty"`         // name of the pod; empty if unknown
	Node        string        `json:"node,omitempty"`        // name of the node; empty if unknown
	Attempt     int           `json:"attempt,omitempty"`     // from 0
	Started     time.Time     `json:"started"`               // start of the share's run
	Spent       time.Duration `json:"spentNs,omitempty"`     // time of the share's run
	Interrupted bool          `json:"interrupted,omitempty"` // the share ended early
	CPU         string        `json:"cpu,omitempty"`         // processor model of the share's machine
	Cores       int           `json:"cores,omitempty"`       // visible to the process
	GOMAXPROCS  int           `json:"gomaxprocs,omitempty"`  // used by the process
	StealShare  *float64      `json:"stealShare,omitempty"`  // share of the CPU time that other machines took
	Starts      int           `json:"starts,omitempty"`      // plays with a common start
	Late        time.Duration `json:"lateNs,omitempty"`      // longest delay after a common start
	Alone       int           `json:"alone,omitempty"`       // starts that did not wait for all shares
}

// Merge merges shares that ran at the same time into one run. load returns the share of an attempt
// by its index. Each merged cell combines that cell of all shares, round by round. If a share has
// several attempts, Merge uses the first finished one, else the last. The choice does not depend on
// the figures.
//
// Counts are added. Distributions are added exactly, so quantiles are those of all
// events. The elapsed time is the longest of the shares, and events/s is all events
// over that time. Per-event figures are weighted by events. A round that one share lacks is left out.
//
// The verdict on a cell is the worst verdict of its shares, with their indexes, and names missing shares.
// A cell is noisy if the shares did not begin a round at the same time, within [MaxSpread] of its length.
//
// An error wraps [ErrShares] or is load's. Shares must have program, seed, rounds, cells
// and the input of all shares in common. They may run on different machines; [Merged] lists them, and Env is mostly
// that of the first.
// Searches (Knees, Scalings) and runs with a Budget are not for shares: what they play depends on their figures.
//
// Time: O(shares × rounds of all cells), on all processors. Memory: at most 16 shares
// besides their sum.
func Merge(attempts []Attempt, load func(i int) (*Share, error), opts MergeOptions) (*Outcome, error) {
	chosen := choose(attempts)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrShares)
	}
	m := &merger{opts: opts}
	for part := range slices.Chunk(chosen, sharesAtOnce) {
		shares := make([]*Share, len(part))
		for k, i := range part {
			var err error
			if shares[k], err = load(i); err == nil {
				err = m.add(shares[k])
			}
			if err != nil {
				return nil, err
			}
		}
		if err := m.fold(shares); err != nil {
			return nil, err
		}
	}
	return m.outcome(), nil
}

// sharesAtOnce is the number of shares folded at once. Each fold decodes and encodes the
// sums again, so folding single shares would be slow.
const sharesAtOnce = 16

const mostShares = 10_000 // of one run; see storm.MaxShares

// merger merges shares in the order of their indexes.
type merger struct {
	opts       MergeOptions
	out        *Outcome   // nil before the first share
	properties []property // that all shares have in common with the first
	merged     Merged
	cells      []*mergedCell
}

// add checks a share against the first and records it, without its cells.
func (m *merger) add(s *Share) error {
	switch {
	case s.Outcome == nil:
		return fmt.Errorf("%w: share %d has no outcome", ErrShares, s.Index)
	case s.Of < 1 || s.Of > mostShares || s.Index < 0 || s.Index >= s.Of:
		return fmt.Errorf("%w: there is no share %d of %d", ErrShares, s.Index, s.Of)
	}
	if m.out == nil {
		m.begin(s)
	}
	if what, a, b := difference(m.properties, s.properties()); what != "" {
		return MixedError(what, a, m.merged.Shares[0].Index, b, s.Index)
	}
	o := s.Outcome
	for i, c := range o.Comparisons {
		with := &m.out.Comparisons[i]
		with.Rounds = min(with.Rounds, c.Rounds)
	}
	t := MergedShare{
		Index: s.Index, Pod: s.Pod, Node: s.Node, Attempt: s.Attempt, Started: o.Started, Spent: o.Spent, Interrupted: o.Interrupted,
		CPU: o.Env.CPU, Cores: o.Env.Cores, GOMAXPROCS: o.Env.GOMAXPROCS, StealShare: o.Env.StealShare,
		Starts: len(s.Starts),
	}
	for _, st := range s.Starts {
		t.Late = max(t.Late, st.Late)
		if len(st.Absent) > 0 {
			t.Alone++
		}
	}
	m.merged.Shares = append(m.merged.Shares, t)
	m.span(o)
	return nil
}

func (m *merger) begin(s *Share) {
	o := *s.Outcome
	m.out, m.properties, m.merged.Of = &o, s.properties(), s.Of
	o.Name, o.Experiment, o.Dir = cmp.Or(m.opts.Name, o.Name), json.RawMessage(Redact(string(m.opts.Experiment))), ""
	if m.opts.Args != nil {
		o.Env.Args = m.opts.Args
	}
	// Values of one machine at one moment do not describe all shares.
	o.Env.Before, o.Env.After, o.Env.LoadAverage, o.Env.Resumed, o.Env.StealShare = nil, nil, nil, nil, nil
	o.Comparisons = slices.Clone(o.Comparisons)
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		c.Cells = slices.Clone(c.Cells)
		for j, cl := range c.Cells {
			c.Cells[j] = CellResult{
				Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
				Repeats: cl.Repeats, Baseline: cl.Baseline, IgnoreHost: cl.IgnoreHost,
			}
			m.cells = append(m.cells, &mergedCell{comparison: i, place: j, result: &c.Cells[j], rounds: map[int]*mergedRound{}})
		}
	}
}

// MixedError returns the error for a property that must be the same in all shares but
// differs in two. It wraps [ErrShares].
func MixedError(what string, a any, indexA int, b any, indexB int) error {
	return fmt.Errorf("%w: %s is %q in share %d, and %q in share %d", ErrShares, what, fmt.Sprint(a), indexA, fmt.Sprint(b), indexB)
}

// properties of a share that all shares of a run have in common.
func (s *Share) properties() []property {
	o := s.Outcome
	all := append([]property{
		{"the number of shares", s.Of}, {"the program's commit", o.Env.Revision()}, {"Go", o.Env.GoVersion},
	}, o.properties()...)
	for _, c := range o.Comparisons {
		all = append(all, property{"the number of cells of comparison " + c.Family, len(c.Cells)})
		for i := range c.Cells {
			all = append(all, c.Cells[i].properties()...)
		}
	}
	return all
}

func (m *merger) span(o *Outcome) {
	with, env := m.out, &m.out.Env
	if o.Started.Before(with.Started) {
		with.Started = o.Started
	}
	switch {
	case o.Ended == nil:
		with.Ended = nil
	case with.Ended != nil && o.Ended.After(*with.Ended):
		with.Ended = o.Ended
	}
	with.Spent = max(with.Spent, o.Spent)
	with.Interrupted = with.Interrupted || o.Interrupted
	env.Started = with.Started
	if s := o.Env.StealShare; s != nil && (env.StealShare == nil || *s > *env.StealShare) {
		env.StealShare = s
	}
	// Of the fields that tests of a difference between runs read, keep the smallest.
	env.Cores = min(env.Cores, o.Env.Cores)
	env.GOMAXPROCS = min(env.GOMAXPROCS, o.Env.GOMAXPROCS)
}

func (m *merger) fold(shares []*Share) error {
	var cells errgroup.Group
	cells.SetLimit(runtime.GOMAXPROCS(0))
	for _, c := range m.cells {
		cells.Go(func() error { return c.fold(shares) })
	}
	return cells.Wait()
}

func (m *merger) outcome() *Outcome {
	o, t := m.out, &m.merged
	cpus := map[string]bool{}
	here := make([]bool, t.Of)
	for _, s := range t.Shares {
		cpus[s.CPU], here[s.Index] = true, true
	}
	for i, ok := range here {
		if !ok {
			t.Missing = append(t.Missing, i)
		}
	}
	o.Merged = t
	if len(cpus) > 1 {
		o.Env.CPU = fmt.Sprintf("%d kinds of processors", len(cpus))
	}
	for _, c := range m.cells {
		c.finish(*t)
	}
	return o
}

// Share is the result of one of several processes that play one storm together, each
// its own part. [Merge] merges them into one run.
type Share struct {
	Index   int      `json:"index"`             // from 0
	Of      int      `json:"of"`                // number of shares
	Pod     string   `json:"pod,omitempty"`     // name of the pod; empty if unknown
	Node    string   `json:"node,omitempty"`    // name of the node; empty if unknown
	Attempt int      `json:"attempt,omitempty"` // from 0; a retried pod has several
	Outcome *Outcome `json:"outcome"`           // result of this share; Env is that of its machine
	Starts  []Start  `json:"starts,omitempty"`  // plays with a common start
}

// Start describes how a share began a play with a common start.
type Start struct {
	Comparison int           `json:"comparison"`       // index in the run, from 0
	Cell       string        `json:"cell"`             // benchmark name
	Round      int           `json:"round"`            // 0 is the warm-up
	Late       time.Duration `json:"lateNs,omitempty"` // delay after the common start, by the share's own clock
	Absent     []int         `json:"absent,omitempty"` // indexes of shares that the start did not wait for
}

// Attempt identifies one of several results of a share.
type Attempt struct {
	Index    int       `json:"index"`             // of the share
	Of       int       `json:"of"`                // number of shares
	Number   int       `json:"attempt,omitempty"` // of the attempt, from 0
	Commit   string    `json:"commit"`            // [Build.Revision] of the program
	Started  time.Time `json:"started"`           // start of the run
	Finished bool      `json:"finished"`          // the run was not interrupted
}

// choose returns indexes into attempts: those of the results that count, ordered by share.
func choose(attempts []Attempt) []int {
	order := make([]int, len(attempts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := attempts[i], attempts[j]
		later := cmp.Or(cmp.Compare(a.Number, b.Number), a.Started.Compare(b.Started))
		switch {
		case a.Index != b.Index:
			return cmp.Compare(a.Index, b.Index)
		case a.Finished && b.Finished:
			return later
		case a.Finished:
			return -1
		case b.Finished:
			return 1
		}
		return -later
	})
	return slices.CompactFunc(order, func(i, j int) bool { return attempts[i].Index == attempts[j].Index })
}
