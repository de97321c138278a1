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

// ErrShares is wrapped by the errors of [Merge] for shares of which no run can be
// made.
var ErrShares = errors.New("no run can be made of the shares")

// MixedError says that two shares differ in what has to be the same in all of them. It
// wraps [ErrShares].
type MixedError struct {
	// What differs, such as "commit", and how it stands with two shards.
	What   string
	A, B   string
	IndexA int
	IndexB int
}

func (e *MixedError) Error() string {
	return fmt.Sprintf("%v: %s is %q in share %d, and %q in share %d", ErrShares, e.What, e.A, e.IndexA, e.B, e.IndexB)
}

func (e *MixedError) Unwrap() error { return ErrShares }

// MergeOptions say how shares are merged.
type MergeOptions struct {
	Name string   // empty: that of the shares
	Args []string // nil: those of the shares

	// Experiment replaces that of the shares, each of which has its share; see
	// [Options].
	Experiment json.RawMessage
	Partial    bool // show figures although shares are missing
}

// Merged tells what an outcome was merged of.
type Merged struct {
	Of         int           `json:"of"`     // number of shares
	Shares     []MergedShare `json:"shares"` // those included, by index
	Missing    []int         `json:"missing,omitempty"`
	Partial    bool          `json:"partial,omitempty"`    // figures are shown although shares are missing
	Superseded []MergedShare `json:"superseded,omitempty"` // results replaced by another attempt of their share
}

// String is "4 shares", or "3 of 4 shares".
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

// MergedShare is what is told of a share of a [Merged] outcome.
type MergedShare struct {
	Index       int           `json:"index"`
	Pod         string        `json:"pod,omitempty"`
	Node        string        `json:"node,omitempty"`
	Attempt     int           `json:"attempt,omitempty"`
	Started     time.Time     `json:"started"`
	Spent       time.Duration `json:"spentNs,omitempty"`
	Interrupted bool          `json:"interrupted,omitempty"` // it ended early
	CPU         string        `json:"cpu,omitempty"`
	GOARCH      string        `json:"goarch,omitempty"`
	Cores       int           `json:"cores,omitempty"`
	GOMAXPROCS  int           `json:"gomaxprocs,omitempty"`
	Kernel      string        `json:"kernel,omitempty"`
	StealShare  *float64      `json:"stealShare,omitempty"` // part of the CPU time that other machines took
	Starts      int           `json:"starts,omitempty"`     // plays that began with the others
	Late        time.Duration `json:"lateNs,omitempty"`     // longest time after a common start
	Alone       int           `json:"alone,omitempty"`      // starts that did not wait for all
}

// Merge makes one run of what several shares measured at the same time: a cell of it is
// that cell in all shares, and a round that round. Of several results of one share, the
// one counts that [Choose] chooses.
//
// Counts are added up, and so are distributions, exactly: quantiles are those of all
// events together. The time is that of the share that took longest, and events/s all
// events over that time. What is per event is weighted by events; memory is that of all
// processes together, the largest beside it. A round that a share lacks is left out.
//
// The verdict on a cell is the worst of the shares', each named; then that on the whole:
// a cell is noisy where a round of it wasn't begun by all shares at the same time (within
// [MaxSpread] of its length), and invalid, with [CauseShares], where shares are missing
// and opts don't say that a part will do.
//
// An error wraps [ErrShares], and is a *[MixedError] where shares differ in the program,
// the seed, the rounds, the cells, or what their inputs are parts of. Where they ran may
// differ, and is told. A search (Knees, Scalings, Surfaces) can't be merged.
//
// O(shares × rounds of all cells) in time, as many processors as there are, and the size
// of all shares in memory; see [Merger] for less.
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

// Merger merges shares that come one by one, and holds no more than a few of them at a
// time besides what they add up to.
type Merger struct {
	opts    MergeOptions
	out     *Outcome
	first   int
	whole   []string
	merged  Merged
	inputs  []map[string]int
	cells   []*mergedCell
	pending []pendingShare
	titles  []bool
	rounds  []int
	steal   *float64
	cpus    map[string]int
}

type pendingShare struct {
	Share
	starts map[startKey]Start
}

type startKey struct {
	comparison int
	cell       string
	round      int
}

// pendingShares is how many are added up at once: each time, what they add up to is
// taken apart and put together again.
const pendingShares = 16

// NewMerger returns a merger without shares.
func NewMerger(opts MergeOptions) *Merger {
	return &Merger{opts: opts, cpus: map[string]int{}}
}

// Add adds a share, which the merger keeps for a while. Each index is added once. After
// an error the merger is of no use.
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

// Supersede notes a result that another one of its share is taken instead of.
func (m *Merger) Supersede(s Share) {
	m.merged.Superseded = append(m.merged.Superseded, mergedShare(s))
}

// take checks a share against the first one, and notes what is told of it.
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

// told is what is told of a share.
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

// begin makes an outcome of the shape of the first share's.
func (m *Merger) begin(s Share) {
	o := *s.Outcome
	m.first, m.whole, m.merged.Of = s.Index, s.Whole, s.Of
	m.out = &Outcome{
		Format: Format, Name: o.Name, Started: o.Started, Ended: o.Ended, Seed: o.Seed,
		Rounds: o.Rounds, Budget: o.Budget, Spent: o.Spent, Fresh: o.Fresh, Env: o.Env,
	}
	// What is known of one machine at one time is not that of all.
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

// compare refuses a share that is not of the run of the first one.
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
		// Titles may have figures of the share's part.
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

// span widens what is known of the run as a whole.
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
	// What isn't the same everywhere is not the run's.
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

// fold adds the pending shares up, cell by cell, with as many goroutines as there are
// processors.
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

// Outcome returns the run, once all shares were added. Without any share there is none:
// the error wraps [ErrShares].
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

// finish works out what is told of all shares together.
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

// Share is what one of several processes did that play one storm together, each its
// own part of it. [Merge] makes one run of all of them.
type Share struct {
	Index   int      `json:"index"`         // from 0
	Of      int      `json:"of"`            // number of shares
	Pod     string   `json:"pod,omitempty"` // where it ran; empty if unknown
	Node    string   `json:"node,omitempty"`
	Attempt int      `json:"attempt,omitempty"` // from 0
	Whole   []string `json:"whole,omitempty"`   // digests of the whole inputs, one per comparison; empty for a live cluster
	Outcome *Outcome `json:"outcome"`           // its Env is the share's own
	Starts  []Start  `json:"starts,omitempty"`  // plays that began together with the others
}

// Start is how a share began a play that all were to begin at the same time.
type Start struct {
	Comparison int           `json:"comparison"`       // place in the run, from 0
	Cell       string        `json:"cell"`             // empty for all cells of the round
	Round      int           `json:"round"`            // 0 is the warm-up
	Late       time.Duration `json:"lateNs,omitempty"` // after the common start, by its own clock
	Absent     []int         `json:"absent,omitempty"` // indexes of shares that the start did not wait for
}

// Attempt tells one result of a share from others of the same share.
type Attempt struct {
	Index    int // of the share
	Number   int // of the attempt, from 0
	Pod      string
	Started  time.Time
	Finished bool // it ended on its own
}

func (s Share) attempt() Attempt {
	o := s.Outcome
	return Attempt{Index: s.Index, Number: s.Attempt, Pod: s.Pod, Started: o.Started, Finished: o.Ended != nil && !o.Interrupted}
}

// Choose says which of several results of each share counts: the first attempt that came
// to its end, so that nobody has the choice; of those that none did, the last. It returns
// their places, by index, and those of the others. What stands there twice, the same
// attempt of the same pod begun at the same time, counts once. The error wraps
// [ErrShares]: two different results claim to be the same attempt.
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
