package lab_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// every is the distance of the operations that a test of crashes fails.
var every = flag.Int("crash-every", 101, "fail one operation of the file system in so many; 1 for all")

// node is a file or a directory, with what a power cut leaves of it.
type node struct {
	data, synced []byte
	names, kept  map[string]*node // of a directory
}

func newDir() *node { return &node{names: map[string]*node{}, kept: map[string]*node{}} }

// fault is what happens to an operation.
type fault struct {
	name  string
	err   error                        // of the operation; nil: the process ends before it
	short bool                         // half of a write arrives
	lasts bool                         // later operations fail, too
	left  func(*node) map[string]*node // names that remain in a directory after the process's end
	bytes func(*node) []byte           // content that remains in a file
}

func allNames(n *node) map[string]*node  { return n.names }
func keptNames(n *node) map[string]*node { return n.kept }
func allBytes(n *node) []byte            { return n.data }
func syncedBytes(n *node) []byte         { return n.synced }

// faults are those of each operation.
var faults = []fault{
	{name: "disk full", err: syscall.ENOSPC, lasts: true},
	{name: "disk full once", err: syscall.ENOSPC},
	{name: "short write", err: syscall.ENOSPC, short: true, lasts: true},
	{name: "short write once", err: syscall.ENOSPC, short: true},
	{name: "read-only", err: syscall.EROFS, lasts: true},
	{name: "I/O error", err: syscall.EIO, lasts: true},
	{name: "I/O error once", err: syscall.EIO},
	{name: "kill", left: allNames, bytes: allBytes},
	{name: "power cut", left: keptNames, bytes: syncedBytes},
	{name: "power cut that keeps names", left: allNames, bytes: syncedBytes},
}

var errEnded = errors.New("the process has ended")

// disk is a file system in a directory. Its operation number at meets the fault.
type disk struct {
	t     *testing.T
	root  string
	tree  *node
	fault fault
	at, n int
	ended bool
	last  string // operation that met the fault
}

// mount returns the file system of a directory.
func mount(t *testing.T, root string, f fault, at int) *disk {
	return &disk{t: t, root: root, tree: read(t, root), fault: f, at: at}
}

// read returns a directory in which everything is synced.
func read(t *testing.T, dir string) *node {
	t.Helper()
	d := newDir()
	entries := must(os.ReadDir(dir))(t)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			d.names[e.Name()] = read(t, path)
			continue
		}
		data := must(os.ReadFile(path))(t)
		d.names[e.Name()] = &node{data: data, synced: data}
	}
	d.kept = maps.Clone(d.names)
	return d
}

// leave replaces the directory by what the end of the process leaves of it.
func (d *disk) leave() {
	d.t.Helper()
	d.ended = true
	var write func(n *node, path string) error
	write = func(n *node, path string) error {
		if n.names == nil {
			return os.WriteFile(path, d.fault.bytes(n), 0o644)
		}
		err := os.MkdirAll(path, 0o755)
		for name, child := range d.fault.left(n) {
			err = errors.Join(err, write(child, filepath.Join(path, name)))
		}
		return err
	}
	if err := errors.Join(os.RemoveAll(d.root), write(d.tree, d.root)); err != nil {
		d.t.Fatal(err)
	}
}

// step counts an operation and returns its fault.
func (d *disk) step(op, path string) error {
	if d.ended {
		return errEnded
	}
	d.n++
	if d.at == 0 || d.n < d.at || d.n > d.at && !d.fault.lasts {
		return nil
	}
	if d.n == d.at {
		d.last = op + " " + filepath.Base(path)
	}
	if d.fault.err == nil {
		d.ended = true
		return errEnded
	}
	return &fs.PathError{Op: op, Path: path, Err: d.fault.err}
}

// find returns the directory of a path, and its last element.
func (d *disk) find(path string) (dir *node, name string) {
	d.t.Helper()
	rel, err := filepath.Rel(d.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		d.t.Fatalf("%s is outside of %s", path, d.root)
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	dir = d.tree
	for _, p := range parts[:len(parts)-1] {
		if dir = dir.names[p]; dir == nil {
			dir = newDir() // Its parent is missing, too.
		}
	}
	return dir, parts[len(parts)-1]
}

func (d *disk) Mkdir(path string) error {
	if err := d.step("mkdir", path); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	dir, name := d.find(path)
	dir.names[name] = newDir()
	return nil
}

func (d *disk) Create(path string) (lab.File, error) {
	if err := d.step("create", path); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	dir, name := d.find(path)
	if dir.names[name] == nil {
		dir.names[name] = &node{}
	}
	dir.names[name].data = nil
	return &diskFile{d, file, dir.names[name]}, nil
}

func (d *disk) Rename(from, to string) error {
	if err := d.step("rename", to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, name := d.find(from)
	into, as := d.find(to)
	into.names[as] = dir.names[name]
	delete(dir.names, name)
	return nil
}

func (d *disk) Remove(path string) error {
	if err := d.step("remove", path); err != nil {
		return err
	}
	dir, name := d.find(path)
	delete(dir.names, name)
	return os.RemoveAll(path)
}

func (d *disk) Sync(path string) error {
	if err := d.step("sync", path); err != nil {
		return err
	}
	dir := d.tree
	if path != d.root {
		in, name := d.find(path)
		dir = in.names[name]
	}
	dir.kept = maps.Clone(dir.names)
	return nil
}

type diskFile struct {
	d    *disk
	file *os.File
	node *node
}

func (f *diskFile) Write(p []byte) (int, error) {
	err := f.d.step("write", f.file.Name())
	if err != nil && !(f.d.fault.short && !f.d.ended) {
		return 0, err
	}
	if err != nil {
		p = p[:len(p)/2]
	}
	f.node.data = append(f.node.data, p...)
	n, failed := f.file.Write(p)
	return n, errors.Join(err, failed)
}

func (f *diskFile) Sync() error {
	if err := f.d.step("sync", f.file.Name()); err != nil {
		return err
	}
	f.node.synced = bytes.Clone(f.node.data)
	return nil
}

func (f *diskFile) Close() error {
	return errors.Join(f.file.Close(), f.d.step("close", f.file.Name()))
}

// crashCase is a command that meets each fault at each of its operations.
type crashCase struct {
	prepare func(t *testing.T, dir string)
	act     func(t *testing.T, dir string, d *disk) (reported map[string]time.Time, err error)
	check   func(t *testing.T, dir string, reported map[string]time.Time)
}

// crash tries a command with each fault at each operation, or one in *every.
func crash(t *testing.T, c crashCase) {
	t.Helper()
	tried, total := 0, 0
	for k, f := range faults {
		for at := 1 + k%*every; ; at += *every {
			more := true
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if c.prepare != nil {
					c.prepare(t, dir)
				}
				d := mount(t, dir, f, at)
				reported, err := c.act(t, dir, d)
				more, total = d.n >= at, max(total, d.n)
				if f.err == nil {
					d.leave() // also after the last operation
				} else if more {
					wantOneLine(t, err, f.err)
				}
				if !t.Failed() {
					c.check(t, dir, reported)
				}
				if t.Failed() {
					t.Errorf("%s at operation %d, %s", f.name, at, d.last)
				}
			})
			if t.Failed() || !more {
				break
			}
			tried++
		}
	}
	t.Logf("%d operations, %d faults tried", total, tried)
}

// wantOneLine fails the test unless the error names its cause, once, in one line.
func wantOneLine(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, cause) || strings.Count(err.Error(), cause.Error()) != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want %v once", err, cause)
	}
}

// crashCells are a sound cell, one that is late, and one that loses an event after a round.
func crashCells(s *playLog) []lab.Comparison {
	return comparison(
		s.cell("good", "", nil, nil),
		s.cell("late", "2000", func(int) float64 { return 0.5 }, nil),
		s.cell("loses", "", nil, func(round int) error {
			if round == 2 {
				return lab.ErrLost
			}
			return nil
		}),
	)
}

const crashRounds = 2

// playCrashed runs or resumes a run. It returns the rounds that were reported as finished before the process's
// end, which d may bring, and the error.
func playCrashed(ctx context.Context, s *playLog, dir string, resume bool, d *disk) (reported map[string]time.Time, o *lab.Outcome, err error) {
	reported = map[string]time.Time{}
	opts := lab.Options{Rounds: crashRounds, Seed: 5, Dir: dir, Resume: resume, Experiment: []byte(`{"name":"crash"}`),
		Progress: func(p lab.Progress) {
			s.progress(p)
			if !p.Finished || p.Skipped || p.Round == 0 || d != nil && d.ended {
				return
			}
			for _, r := range slices.Concat(p.Result.Rounds, p.Result.Withheld) {
				if r.Round == p.Round {
					reported[fmt.Sprintf("%s#%d", p.Cell, r.Round)] = r.Started
				}
			}
		}}
	if d != nil {
		opts.SetFiles(d)
	}
	o, err = ignoringHost(ctx, crashCells(s), opts)
	return reported, o, err
}

// checkRun resumes a run that met a fault: no round is lost, none is played twice, and the result is that of
// a run without a fault.
func checkRun(whole string) func(t *testing.T, dir string, reported map[string]time.Time) {
	return func(t *testing.T, dir string, reported map[string]time.Time) {
		t.Helper()
		dir = filepath.Join(dir, "results", "run")
		_, missing := os.Stat(dir)
		if missing != nil {
			if len(reported) > 0 {
				t.Fatalf("no folder, and %d rounds were finished", len(reported))
			}
		} else if had := loadCrashed(t, dir, reported); had != nil {
			maps.Copy(reported, had)
		}
		if t.Failed() {
			return
		}
		s := &playLog{plays: map[string]int{}}
		_, o, err := playCrashed(t.Context(), s, dir, missing == nil, nil)
		if err != nil {
			t.Fatalf("it goes on: %v", err)
		}
		for key := range reported {
			if s.plays[key] > 0 {
				t.Errorf("%s was finished, and played again", key)
			}
		}
		if got := sum(o); got != whole {
			t.Errorf("got\n%s\nwant\n%s", got, whole)
		}
		loadCrashed(t, dir, nil)
	}
}

// loadCrashed reads a folder with all readers, and returns its rounds. Those that were reported must be
// there, unless the cell has failed since or the run is over and dropped them.
func loadCrashed(t *testing.T, dir string, reported map[string]time.Time) map[string]time.Time {
	t.Helper()
	o := must(lab.Load(dir))(t)
	bench := benchFile(t, dir)
	rounds, dropped := map[string]time.Time{}, map[string]bool{}
	for _, c := range o.Cells() {
		name := c.BenchName()
		dropped[name] = c.Verdict.Failed() || c.Verdict.Status == lab.Invalid && o.Ended != nil && !o.Interrupted
		for _, r := range slices.Concat(c.Rounds, c.Withheld) {
			key := fmt.Sprintf("%s#%d", name, r.Round)
			if _, twice := rounds[key]; twice {
				t.Errorf("%s is there twice", key)
			}
			rounds[key] = r.Started
		}
		// bench.txt is written before run.json: it may lack a cell that fails.
		if bench[name] < len(c.Rounds) && c.Label("impl") != "loses" {
			t.Errorf("%s: %d lines in %s, %d rounds", name, bench[name], lab.BenchFile, len(c.Rounds))
		}
	}
	for key, started := range reported {
		if name, _, _ := strings.Cut(key, "#"); !dropped[name] && !rounds[key].Equal(started) {
			t.Errorf("%s was finished at %v; the folder has %v", key, started, rounds[key])
		}
	}
	if err := report.HTML(io.Discard, o); err != nil {
		t.Error(err)
	}
	return rounds
}

// wholeRun is the result of a run without a fault.
func wholeRun(t *testing.T) (whole string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &playLog{plays: map[string]int{}}
		_, o, err := playCrashed(t.Context(), s, filepath.Join(t.TempDir(), "run"), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		whole = sum(o)
	})
	return whole
}

// TestCrashOfRun: each operation of a run on its results folder fails, or the machine stops there.
func TestCrashOfRun(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	crash(t, crashCase{
		act: func(t *testing.T, dir string, d *disk) (map[string]time.Time, error) {
			reported, _, err := playCrashed(t.Context(), &playLog{plays: map[string]int{}}, filepath.Join(dir, "results", "run"), false, d)
			return reported, err
		},
		check: checkRun(wholeRun(t)),
	})
}

// TestCrashOfResume: the same of a run that was interrupted and is resumed.
func TestCrashOfResume(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	crash(t, crashCase{
		prepare: func(t *testing.T, dir string) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &playLog{plays: map[string]int{}, at: 6, stop: cancel}
			if _, _, err := playCrashed(ctx, s, filepath.Join(dir, "results", "run"), false, nil); err != nil {
				t.Fatal(err)
			}
		},
		act: func(t *testing.T, dir string, d *disk) (map[string]time.Time, error) {
			dir = filepath.Join(dir, "results", "run")
			before := loadCrashed(t, dir, nil)
			reported, _, err := playCrashed(t.Context(), &playLog{plays: map[string]int{}}, dir, true, d)
			maps.Copy(reported, before)
			return reported, err
		},
		check: checkRun(wholeRun(t)),
	})
}

// TestCrashOfReport: the same of a merged run and its report. The folder is whole or absent.
func TestCrashOfReport(t *testing.T) {
	shares := steadyShares(time.Second, time.Second) // They measure, which a bubble has no time for.
	write := func(t *testing.T, dir string, disk lab.FileSystem) error {
		o := mustMerge(t, shares, lab.MergeOptions{})
		o.SetFiles(disk)
		dir = filepath.Join(dir, "results", "merged")
		if err := o.Create(dir); err != nil && !errors.Is(err, lab.ErrExists) {
			return err
		}
		return report.Write(dir, o)
	}
	crash(t, crashCase{
		act: func(t *testing.T, dir string, d *disk) (map[string]time.Time, error) { return nil, write(t, dir, d) },
		check: func(t *testing.T, dir string, _ map[string]time.Time) {
			merged := filepath.Join(dir, "results", "merged")
			if _, err := os.Stat(merged); err == nil {
				loadCrashed(t, merged, nil)
			}
			for _, name := range []string{lab.ReportFile, report.HTMLFile} {
				text, err := os.ReadFile(filepath.Join(merged, name))
				if err == nil && !strings.Contains(string(text), "2 shares") {
					t.Errorf("%s is not whole: %d bytes", name, len(text))
				}
			}
			if err := write(t, dir, nil); err != nil {
				t.Errorf("again: %v", err)
			}
			if rounds := loadCrashed(t, merged, nil); len(rounds) != 3 {
				t.Errorf("%d rounds", len(rounds))
			}
		},
	})
}
