package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"watchlab/bench/cell"
)

// ErrShares is wrapped by the errors of [Merge] for shares that cannot be merged.
var ErrShares = errors.New("no run can be made of the shares")

// MixedError reports a property that must be the same in all shares but differs in two.
// It wraps [ErrShares].
type MixedError struct {
	// What is the property, such as "commit"; A and B are its values in the shares
	// IndexA and IndexB.
	What   string
	A, B   string
	IndexA int
	IndexB int
}

func (e *MixedError) Error() string {
	return fmt.Sprintf("%v: %s is %q in share %d, and %q in share %d", ErrShares, e.What, e.A, e.IndexA, e.B, e.IndexB)
}

func (e *MixedError) Unwrap() error { return ErrShares }

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

// Merge merges shares that ran at the same time into one run. Each merged cell combines
// that cell of all shares, round by round. If a share has several results, [Choose]
// picks one.
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
// An error wraps [ErrShares]. It is a *[MixedError] if shares differ in program, seed,
// rounds, cells or whole input. Shares may run on different machines; [Merged] lists
// them. Searches (Knees, Scalings, Surfaces) cannot be merged.
//
// Time: O(shares × rounds of all cells), on all processors. Memory: the size of all
// shares; [Merger] needs less.
func Merge(shares []Share, opts MergeOptions) (*Outcome, error) {
	attempts := make([]Attempt, len(shares))
	for i, s := range shares {
		if s.Outcome == nil {
			return nil, fmt.Errorf("%w: share %d has no outcome", ErrShares, s.Index)
		}
		attempts[i] = s.attempt()
	}
	chosen, passed, err := Choose(attempts)
	if err != nil {
		return nil, err
	}
	m := NewMerger(opts)
	for _, i := range chosen {
		if err := m.Add(shares[i]); err != nil {
			return nil, err
		}
	}
	for _, i := range passed {
		m.Supersede(shares[i])
	}
	return m.Outcome()
}

// Merger merges shares one by one. It holds at most 16 shares in memory besides their
// sum. It is not safe for concurrent use.
type Merger struct {
	opts    MergeOptions
	out     *Outcome
	first   int      // index of the first share
	whole   []string // digests of the whole inputs, from the first share
	merged  Merged
	inputs  []map[string]int // for each comparison: input digest → share
	cells   []*mergedCell
	pending []pendingShare // added, not yet folded
	titles  []bool         // comparisons whose titles differ
	rounds  []int          // fewest rounds per comparison
	steal   *float64       // largest steal share
	cpus    map[string]int // number of shares per CPU model
}

// pendingShare is a share that is added but not yet folded.
type pendingShare struct {
	Share
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

// NewMerger returns a merger without shares.
func NewMerger(opts MergeOptions) *Merger {
	return &Merger{opts: opts, cpus: map[string]int{}}
}

// Add adds a share, which the merger retains until the next fold. Each index can be
// added once. After an error the merger is unusable.
func (m *Merger) Add(s Share) error {
	if err := m.take(s); err != nil {
		return err
	}
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

// Supersede records a result that another attempt of its share replaces.
func (m *Merger) Supersede(s Share) {
	m.merged.Superseded = append(m.merged.Superseded, mergedShare(s))
}

// take checks a share against the first one and records it.
func (m *Merger) take(s Share) error {
	switch {
	case s.Outcome == nil:
		return fmt.Errorf("%w: share %d has no outcome", ErrShares, s.Index)
	case s.Of < 1 || s.Index < 0 || s.Index >= s.Of:
		return fmt.Errorf("%w: there is no share %d of %d", ErrShares, s.Index, s.Of)
	case len(s.Outcome.Knees)+len(s.Outcome.Scalings)+len(s.Outcome.Surfaces) > 0:
		return fmt.Errorf("%w: share %d searched for something, and what it played depends on what it found", ErrShares, s.Index)
	case slices.ContainsFunc(m.merged.Shares, func(o MergedShare) bool { return o.Index == s.Index }):
		return fmt.Errorf("%w: share %d stands there twice", ErrShares, s.Index)
	}
	if m.out == nil {
		m.begin(s)
	} else if err := m.compare(s); err != nil {
		return err
	}
	o := s.Outcome
	for i, c := range o.Comparisons {
		if c.Input == "" {
			continue
		}
		if other, ok := m.inputs[i][c.Input]; ok {
			return fmt.Errorf("%w: shares %d and %d played the same part of the storm", ErrShares, other, s.Index)
		}
		m.inputs[i][c.Input] = s.Index
	}
	m.merged.Shares = append(m.merged.Shares, mergedShare(s))
	m.span(o)
	return nil
}

// mergedShare describes a share for [Merged].
func mergedShare(s Share) MergedShare {
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
func (m *Merger) begin(s Share) {
	o := *s.Outcome
	m.first, m.whole, m.merged.Of = s.Index, s.Whole, s.Of
	m.out = &Outcome{
		Format: Format, Name: o.Name, Started: o.Started, Ended: o.Ended, Seed: o.Seed,
		Rounds: o.Rounds, Budget: o.Budget, Spent: o.Spent, Fresh: o.Fresh, Env: o.Env,
	}
	// Values of one machine at one moment do not describe all shares.
	m.out.Env.Before, m.out.Env.After, m.out.Env.LoadAverage, m.out.Env.Resumed, m.out.Env.StealShare = nil, nil, nil, nil, nil
	for i, c := range o.Comparisons {
		merged := ComparisonResult{Family: c.Family, Title: c.Title, Latency: c.Latency}
		for j, cl := range c.Cells {
			m.cells = append(m.cells, &mergedCell{
				comparison: i, place: j,
				result: CellResult{
					Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
					Repeats: cl.Repeats, Baseline: cl.Baseline, Seed: cl.Seed,
				},
				rounds: map[int]*mergedRound{},
			})
		}
		m.out.Comparisons = append(m.out.Comparisons, merged)
		m.inputs = append(m.inputs, map[string]int{})
		m.rounds = append(m.rounds, o.RoundsOf(c))
	}
	m.titles = make([]bool, len(o.Comparisons))
}

// compare rejects a share that belongs to another run than the first one.
func (m *Merger) compare(s Share) error {
	o, with := s.Outcome, m.out
	var err error
	same := func(what string, a, b any) {
		if err == nil && a != b {
			err = &MixedError{What: what, A: fmt.Sprint(a), IndexA: m.first, B: fmt.Sprint(b), IndexB: s.Index}
		}
	}
	same("the number of shares", m.merged.Of, s.Of)
	same("the program's commit", with.Env.Revision(), o.Env.Revision())
	same("Go", with.Env.GoVersion, o.Env.GoVersion)
	same("the seed", with.Seed, o.Seed)
	same("the budget", with.Budget, o.Budget)
	if with.Budget == 0 {
		same("the number of rounds", with.Rounds, o.Rounds)
	}
	same("a process for each play", with.Fresh, o.Fresh)
	same("the number of comparisons", len(with.Comparisons), len(o.Comparisons))
	same("what the input is a part of", fmt.Sprint(m.whole), fmt.Sprint(s.Whole))
	if err != nil {
		return err
	}
	at := 0
	for i, c := range o.Comparisons {
		is := with.Comparisons[i]
		same("the family", is.Family, c.Family)
		same("the latency of comparison "+c.Family, is.Latency, c.Latency)
		// Titles may contain numbers that depend on the share.
		m.titles[i] = m.titles[i] || is.Title != c.Title
		n := 0
		for at+n < len(m.cells) && m.cells[at+n].comparison == i {
			n++
		}
		same("the number of cells of comparison "+c.Family, n, len(c.Cells))
		if err != nil {
			return err
		}
		for j, cl := range c.Cells {
			then := m.cells[at+j].result
			name := cl.BenchName()
			same("a cell", then.BenchName(), name)
			same("what "+name+" guarantees", then.Guarantees, cl.Guarantees)
			same("the class of "+name, then.Class, cl.Class)
			same("what "+name+" repeats", then.Repeats, cl.Repeats)
			same("whether "+name+" is the baseline", then.Baseline, cl.Baseline)
		}
		at += n
	}
	return err
}

// span updates the start, the end and the environment of the merged run.
func (m *Merger) span(o *Outcome) {
	with := m.out
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
	with.Env.Started = with.Started
	for i, c := range o.Comparisons {
		m.rounds[i] = min(m.rounds[i], o.RoundsOf(c))
	}
	if s := o.Env.StealShare; s != nil && (m.steal == nil || *s > *m.steal) {
		m.steal = s
	}
	m.cpus[o.Env.CPU]++
	// Keep the smallest value, or only a value that all shares have in common.
	with.Env.Cores = min(with.Env.Cores, o.Env.Cores)
	with.Env.GOMAXPROCS = min(with.Env.GOMAXPROCS, o.Env.GOMAXPROCS)
	for _, f := range []struct{ is, other *string }{
		{&with.Env.Kernel, &o.Env.Kernel}, {&with.Env.Governor, &o.Env.Governor}, {&with.Env.GOGC, &o.Env.GOGC}, {&with.Env.GOARCH, &o.Env.GOARCH},
	} {
		if *f.is != *f.other {
			*f.is = ""
		}
	}
	if l := o.Env.GOMEMLIMIT; l == nil || with.Env.GOMEMLIMIT == nil || *l != *with.Env.GOMEMLIMIT {
		with.Env.GOMEMLIMIT = nil
	}
	if !reflect.DeepEqual(with.Env.Limits, o.Env.Limits) {
		with.Env.Limits = cell.Limits{}
	}
}

// fold adds the pending shares to the cells, with one goroutine per processor.
func (m *Merger) fold() error {
	shares := m.pending
	m.pending = nil
	slices.SortFunc(shares, func(a, b pendingShare) int { return a.Index - b.Index })
	errs := make([]error, len(m.cells))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(m.cells)) {
		workers.Go(func() {
			for i := range next {
				errs[i] = m.cells[i].fold(shares)
			}
		})
	}
	for i := range m.cells {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

// Outcome returns the merged run after all shares were added. Without a share the error
// wraps [ErrShares].
func (m *Merger) Outcome() (*Outcome, error) {
	if m.out == nil {
		return nil, fmt.Errorf("%w: there are none", ErrShares)
	}
	if err := m.fold(); err != nil {
		return nil, err
	}
	o := m.out
	m.finish()
	for i := range o.Comparisons {
		o.Comparisons[i].Cells = nil
		o.Comparisons[i].Rounds = m.rounds[i]
		if m.titles[i] {
			o.Comparisons[i].Title += ", differing by share"
		}
		if i < len(m.whole) && len(m.merged.Missing) == 0 {
			o.Comparisons[i].Input = m.whole[i]
		}
	}
	if o.Budget > 0 {
		o.Rounds = slices.Max(append([]int{0}, m.rounds...))
	}
	for _, c := range m.cells {
		comparison := &o.Comparisons[c.comparison]
		comparison.Cells = append(comparison.Cells, c.finish(m.merged, comparison.Latency))
	}
	return o, nil
}

// finish fills in the fields of the outcome that need all shares.
func (m *Merger) finish() {
	o, t := m.out, &m.merged
	byIndex := func(a, b MergedShare) int { return a.Index - b.Index }
	slices.SortFunc(t.Shares, byIndex)
	slices.SortStableFunc(t.Superseded, byIndex)
	t.Missing = nil
	for i, at := 0, 0; i < t.Of; i++ {
		if at < len(t.Shares) && t.Shares[at].Index == i {
			at++
			continue
		}
		t.Missing = append(t.Missing, i)
	}
	t.Partial = m.opts.Partial && len(t.Missing) > 0
	told := *t
	o.Merged = &told
	if m.opts.Name != "" {
		o.Name = m.opts.Name
	}
	if m.opts.Args != nil {
		o.Env.Args = m.opts.Args
	}
	if m.opts.Experiment != nil {
		o.Experiment = m.opts.Experiment
	}
	o.Env.StealShare = m.steal
	if len(m.cpus) > 1 {
		o.Env.CPU = fmt.Sprintf("%d kinds of processors", len(m.cpus))
	}
}

// Share is the result of one of several processes that play one storm together, each
// its own part. [Merge] merges all shares into one run.
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

func (s Share) attempt() Attempt {
	o := s.Outcome
	return Attempt{Index: s.Index, Number: s.Attempt, Pod: s.Pod, Started: o.Started, Finished: o.Ended != nil && !o.Interrupted}
}

// Choose picks one result per share: the first finished attempt, or else the last
// attempt. Nobody can select a result by its figures.
//
// Choose returns indexes into attempts: those of the chosen results, ordered by share,
// and those of the others. Copies of one result (same attempt, pod and start) count
// once. The error wraps [ErrShares] if two different results claim to be the same
// attempt.
func Choose(attempts []Attempt) (chosen, passed []int, err error) {
	order := make([]int, len(attempts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := attempts[i], attempts[j]
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Number, b.Number), a.Started.Compare(b.Started), cmp.Compare(a.Pod, b.Pod))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && attempts[order[n]].Index == attempts[order[0]].Index {
			n++
		}
		of := order[:n]
		order = order[n:]
		best := of[len(of)-1]
		if at := slices.IndexFunc(of, func(i int) bool { return attempts[i].Finished }); at >= 0 {
			best = of[at]
		}
		chosen = append(chosen, best)
		for k, i := range of {
			a := attempts[i]
			if k > 0 {
				before := attempts[of[k-1]]
				if a.Number == before.Number && a.Pod == before.Pod && !a.Started.Equal(before.Started) {
					return nil, nil, fmt.Errorf("%w: share %d has two results of attempt %d (pod %q), one begun at %s and one at %s",
						ErrShares, a.Index, a.Number, a.Pod, before.Started.UTC().Format(time.RFC3339Nano), a.Started.UTC().Format(time.RFC3339Nano))
				}
			}
			same := a.Number == attempts[best].Number && a.Pod == attempts[best].Pod && a.Started.Equal(attempts[best].Started)
			if i != best && !same {
				passed = append(passed, i)
			}
		}
	}
	return chosen, passed, nil
}
