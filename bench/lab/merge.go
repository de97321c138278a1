package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
	Partial    bool // show figures even if shares are missing
}

// Merged describes the shares of a merged outcome.
type Merged struct {
	Of         int           `json:"of"`                   // number of shares
	Shares     []MergedShare `json:"shares"`               // the merged shares, by index
	Missing    []int         `json:"missing,omitempty"`    // indexes of the missing shares
	Partial    bool          `json:"partial,omitempty"`    // figures are shown even though shares are missing
	Superseded []MergedShare `json:"superseded,omitempty"` // results replaced by another attempt of the same share
}

// String returns "4 shares", or "3 of 4 shares" if one is missing.
func (m Merged) String() string {
	n := fmt.Sprintf("%d shares", m.Of)
	if m.Of == 1 {
		n = "1 share"
	}
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
	GOARCH      string        `json:"goarch,omitempty"`      // architecture of the program
	Cores       int           `json:"cores,omitempty"`       // visible to the process
	GOMAXPROCS  int           `json:"gomaxprocs,omitempty"`  // used by the process
	Kernel      string        `json:"kernel,omitempty"`      // release
	StealShare  *float64      `json:"stealShare,omitempty"`  // share of the CPU time that other machines took
	Starts      int           `json:"starts,omitempty"`      // plays with a common start
	Late        time.Duration `json:"lateNs,omitempty"`      // longest delay after a common start
	Alone       int           `json:"alone,omitempty"`       // starts that did not wait for all shares
}

// Merge merges shares that ran at the same time into one run. load returns the share of
// an attempt by its index. Each merged cell combines that cell of all shares, round by
// round. If a share has several attempts, the first finished one counts, or else the
// last: nobody can select a result by its figures. Copies of one attempt (same number,
// pod and start) count once.
//
// Counts are added. Distributions are added exactly, so quantiles are those of all
// events. The elapsed time is the longest of the shares, and events/s is all events
// over that time. Per-event figures are weighted by events. Memory is the sum of all
// processes; notes hold the largest share. A round that one share lacks is left out.
//
// The verdict on a cell is the worst verdict of its shares, with their indexes. A cell
// is noisy if the shares did not begin a round at the same time, within [MaxSpread] of
// its length. It is invalid with [CauseShares] if shares are missing, unless
// MergeOptions.Partial is set.
//
// An error wraps [ErrShares] or is load's. Shares must have program, seed, rounds, cells
// and whole input in common. They may run on different machines; [Merged] lists them.
// Searches (Knees, Scalings, Surfaces) cannot be merged.
//
// Time: O(shares × rounds of all cells), on all processors. Memory: at most 16 shares
// besides their sum.
func Merge(attempts []Attempt, load func(i int) (*Share, error), opts MergeOptions) (*Outcome, error) {
	chosen, passed, err := choose(attempts)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrShares)
	}
	m := &merger{opts: opts, cpus: map[string]int{}}
	for _, i := range chosen {
		s, err := load(i)
		if err == nil {
			err = m.add(s)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, i := range passed {
		s, err := load(i)
		if err != nil {
			return nil, err
		}
		m.merged.Superseded = append(m.merged.Superseded, mergedShare(s))
	}
	return m.outcome()
}

// merger merges shares one by one.
type merger struct {
	opts        MergeOptions
	out         *Outcome // without comparisons; nil before the first share
	first       *Share   // without rounds
	merged      Merged
	comparisons []*mergedComparison
	pending     []pendingShare // added, not yet folded
	cpus        map[string]int // number of shares per CPU model
}

// mergedComparison accumulates a comparison over the shares.
type mergedComparison struct {
	ComparisonResult                // without cells; Rounds is the fewest of the shares
	inputs           map[string]int // input digest → index of the share
	cells            []*mergedCell
	titles           bool // the titles of the shares differ
}

// pendingShare is a share that is added but not yet folded.
type pendingShare struct {
	*Share
	starts map[startKey]Start
}

// startKey identifies a start; an empty cell stands for all cells of the round.
type startKey struct {
	comparison int
	cell       string
	round      int
}

// pendingShares is the number of shares folded at once. Each fold decodes and encodes
// the sums again, so folding single shares would be slow.
const pendingShares = 16

// add checks a share against the first one and records it.
func (m *merger) add(s *Share) error {
	switch {
	case s.Outcome == nil:
		return fmt.Errorf("%w: share %d has no outcome", ErrShares, s.Index)
	case s.Of < 1 || s.Index < 0 || s.Index >= s.Of:
		return fmt.Errorf("%w: there is no share %d of %d", ErrShares, s.Index, s.Of)
	case len(s.Outcome.Knees)+len(s.Outcome.Scalings)+len(s.Outcome.Surfaces) > 0:
		return fmt.Errorf("%w: share %d searched for something, and what it played depends on what it found", ErrShares, s.Index)
	}
	if m.out == nil {
		m.begin(s)
	}
	if err := m.compare(s); err != nil {
		return err
	}
	for i, c := range s.Outcome.Comparisons {
		with := m.comparisons[i]
		if other, ok := with.inputs[c.Input]; ok && c.Input != "" {
			return fmt.Errorf("%w: shares %d and %d played the same part of the storm", ErrShares, other, s.Index)
		}
		with.inputs[c.Input] = s.Index
		// Titles may contain numbers that depend on the share.
		with.titles = with.titles || with.Title != c.Title
		with.Rounds = min(with.Rounds, c.Rounds)
	}
	m.merged.Shares = append(m.merged.Shares, mergedShare(s))
	m.span(s.Outcome)
	p := pendingShare{Share: s, starts: map[startKey]Start{}}
	for _, st := range s.Starts {
		p.starts[startKey{st.Comparison, st.Cell, st.Round}] = st
	}
	m.pending = append(m.pending, p)
	if len(m.pending) < pendingShares {
		return nil
	}
	return m.fold()
}

// mergedShare describes a share for [Merged].
func mergedShare(s *Share) MergedShare {
	o := s.Outcome
	t := MergedShare{
		Index: s.Index, Pod: s.Pod, Node: s.Node, Attempt: s.Attempt, Started: o.Started, Spent: o.Spent, Interrupted: o.Interrupted,
		CPU: o.Env.CPU, GOARCH: o.Env.GOARCH, Cores: o.Env.Cores, GOMAXPROCS: o.Env.GOMAXPROCS, Kernel: o.Env.Kernel, StealShare: o.Env.StealShare,
		Starts: len(s.Starts),
	}
	for _, st := range s.Starts {
		t.Late = max(t.Late, st.Late)
		if len(st.Absent) > 0 {
			t.Alone++
		}
	}
	return t
}

// begin creates the outcome with the cells of the first share.
func (m *merger) begin(s *Share) {
	o := *s.Outcome
	first := *s
	first.Outcome = &o
	m.first, m.merged.Of = &first, s.Of
	m.out = &Outcome{
		Format: Format, Name: cmp.Or(m.opts.Name, o.Name), Started: o.Started, Ended: o.Ended, Seed: o.Seed,
		Rounds: o.Rounds, Budget: o.Budget, Fresh: o.Fresh, Experiment: m.opts.Experiment, Env: o.Env,
	}
	if m.opts.Args != nil {
		m.out.Env.Args = m.opts.Args
	}
	// Values of one machine at one moment do not describe all shares.
	m.out.Env.Before, m.out.Env.After, m.out.Env.LoadAverage, m.out.Env.Resumed, m.out.Env.StealShare = nil, nil, nil, nil, nil
	o.Comparisons = slices.Clone(o.Comparisons)
	for i, c := range o.Comparisons {
		merged := &mergedComparison{
			ComparisonResult: ComparisonResult{Family: c.Family, Title: c.Title, Latency: c.Latency, Rounds: c.Rounds},
			inputs:           map[string]int{},
		}
		cells := make([]CellResult, len(c.Cells))
		for j, cl := range c.Cells {
			cells[j] = CellResult{
				Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
				Repeats: cl.Repeats, Baseline: cl.Baseline,
			}
			merged.cells = append(merged.cells, &mergedCell{comparison: i, place: j, result: cells[j], rounds: map[int]*mergedRound{}})
		}
		o.Comparisons[i].Cells = cells
		m.comparisons = append(m.comparisons, merged)
	}
}

// compare rejects a share that belongs to another run than the first one.
func (m *merger) compare(s *Share) error {
	if what, a, b := difference(m.first.properties(), s.properties()); what != "" {
		return MixedError(what, a, m.first.Index, b, s.Index)
	}
	return nil
}

// MixedError returns the error for a property that must be the same in all shares but
// differs in two. It wraps [ErrShares].
func MixedError(what string, a any, indexA int, b any, indexB int) error {
	return fmt.Errorf("%w: %s is %q in share %d, and %q in share %d", ErrShares, what, fmt.Sprint(a), indexA, fmt.Sprint(b), indexB)
}

// properties of a share that all shares of a run have in common.
func (s *Share) properties() []property {
	o := *s.Outcome
	o.Comparisons = slices.Clone(o.Comparisons)
	for i := range o.Comparisons {
		o.Comparisons[i].Title, o.Comparisons[i].Input = "", ""
	}
	all := append([]property{
		{"the number of shares", s.Of}, {"the program's commit", o.Env.Revision()}, {"Go", o.Env.GoVersion},
		{"what the input is a part of", fmt.Sprint(s.Whole)},
	}, o.properties()...)
	for _, c := range o.Comparisons {
		all = append(all, property{"the number of cells of comparison " + c.Family, len(c.Cells)})
		for i := range c.Cells {
			all = append(all, c.Cells[i].properties()...)
		}
	}
	return all
}

// span updates the start, the end and the environment of the merged run.
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
	m.cpus[o.Env.CPU]++
	// Keep the smallest value, or only a value that all shares have in common.
	env.Cores = min(env.Cores, o.Env.Cores)
	env.GOMAXPROCS = min(env.GOMAXPROCS, o.Env.GOMAXPROCS)
	common(&env.Kernel, o.Env.Kernel)
	common(&env.Governor, o.Env.Governor)
	common(&env.GOGC, o.Env.GOGC)
	common(&env.GOARCH, o.Env.GOARCH)
	common(&env.GOMEMLIMIT, o.Env.GOMEMLIMIT)
	common(&env.Limits, o.Env.Limits)
}

// common clears a value that another share does not have.
func common[T any](value *T, other T) {
	if !reflect.DeepEqual(*value, other) {
		*value = *new(T)
	}
}

// fold adds the pending shares to the cells, on all processors.
func (m *merger) fold() error {
	shares := m.pending
	m.pending = nil
	slices.SortFunc(shares, func(a, b pendingShare) int { return a.Index - b.Index })
	var cells errgroup.Group
	cells.SetLimit(runtime.GOMAXPROCS(0))
	for _, c := range m.comparisons {
		for _, cl := range c.cells {
			cells.Go(func() error { return cl.fold(shares) })
		}
	}
	return cells.Wait()
}

// outcome returns the merged run after all shares were added.
func (m *merger) outcome() (*Outcome, error) {
	if err := m.fold(); err != nil {
		return nil, err
	}
	o, t := m.out, &m.merged
	byIndex := func(a, b MergedShare) int { return a.Index - b.Index }
	slices.SortFunc(t.Shares, byIndex)
	slices.SortStableFunc(t.Superseded, byIndex)
	for i := range t.Of {
		if !slices.ContainsFunc(t.Shares, func(s MergedShare) bool { return s.Index == i }) {
			t.Missing = append(t.Missing, i)
		}
	}
	t.Partial = m.opts.Partial && len(t.Missing) > 0
	o.Merged = t
	if len(m.cpus) > 1 {
		o.Env.CPU = fmt.Sprintf("%d kinds of processors", len(m.cpus))
	}
	if o.Budget > 0 {
		o.Rounds = 0
	}
	for i, c := range m.comparisons {
		if c.titles {
			c.Title += ", differing by share"
		}
		if whole := m.first.Whole; i < len(whole) && len(t.Missing) == 0 {
			c.Input = whole[i]
		}
		if o.Budget > 0 {
			o.Rounds = max(o.Rounds, c.Rounds)
		}
		for _, cl := range c.cells {
			c.Cells = append(c.Cells, cl.finish(*t, c.Latency))
		}
		o.Comparisons = append(o.Comparisons, c.ComparisonResult)
	}
	return o, nil
}

// Share is the result of one of several processes that play one storm together, each
// its own part. [Merge] merges them into one run.
type Share struct {
	Index   int      `json:"index"`             // from 0
	Of      int      `json:"of"`                // number of shares
	Pod     string   `json:"pod,omitempty"`     // name of the pod; empty if unknown
	Node    string   `json:"node,omitempty"`    // name of the node; empty if unknown
	Attempt int      `json:"attempt,omitempty"` // from 0; a retried pod has several
	Whole   []string `json:"whole,omitempty"`   // digests of the whole inputs, one per comparison; empty for a live cluster
	Outcome *Outcome `json:"outcome"`           // result of this share; Env is that of its machine
	Starts  []Start  `json:"starts,omitempty"`  // plays with a common start
}

// Start describes how a share began a play with a common start.
type Start struct {
	Comparison int           `json:"comparison"`       // index in the run, from 0
	Cell       string        `json:"cell"`             // benchmark name; empty for all cells of the round
	Round      int           `json:"round"`            // 0 is the warm-up
	Late       time.Duration `json:"lateNs,omitempty"` // delay after the common start, by the share's own clock
	Absent     []int         `json:"absent,omitempty"` // indexes of shares that the start did not wait for
}

// Attempt identifies one of several results of a share.
type Attempt struct {
	Index    int       // of the share
	Number   int       // of the attempt, from 0
	Pod      string    // name of the pod; empty if unknown
	Started  time.Time // start of the run
	Finished bool      // the run was not interrupted
}

// choose returns indexes into attempts: those of the results that count, ordered by
// share, and those of the others. The error wraps [ErrShares] if two different results
// claim to be the same attempt.
func choose(attempts []Attempt) (chosen, passed []int, err error) {
	order := make([]int, len(attempts))
	for i := range order {
		order[i] = i
	}
	compare := func(i, j int) int {
		a, b := attempts[i], attempts[j]
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Number, b.Number), a.Started.Compare(b.Started), cmp.Compare(a.Pod, b.Pod))
	}
	slices.SortStableFunc(order, compare)
	order = slices.CompactFunc(order, func(i, j int) bool { return compare(i, j) == 0 })
	starts := map[Attempt]time.Time{}
	for _, i := range order {
		a := attempts[i]
		id := Attempt{Index: a.Index, Number: a.Number, Pod: a.Pod}
		if before, ok := starts[id]; ok {
			return nil, nil, fmt.Errorf("%w: share %d has two results of attempt %d (pod %q), one started at %s and one at %s",
				ErrShares, a.Index, a.Number, a.Pod, before.UTC().Format(time.RFC3339Nano), a.Started.UTC().Format(time.RFC3339Nano))
		}
		starts[id] = a.Started
	}
	for len(order) > 0 {
		n := slices.IndexFunc(order, func(i int) bool { return attempts[i].Index != attempts[order[0]].Index })
		if n < 0 {
			n = len(order)
		}
		best := slices.IndexFunc(order[:n], func(i int) bool { return attempts[i].Finished })
		if best < 0 {
			best = n - 1
		}
		chosen = append(chosen, order[best])
		passed = slices.Concat(passed, order[:best], order[best+1:n])
		order = order[n:]
	}
	return chosen, passed, nil
}
