package delivery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"watchlab/bench/lab"
)

// ErrNone is wrapped by the error of [Collect] where no whole result was found.
var ErrNone = errors.New("no result was found")

// Collected is what came of collecting a run.
type Collected struct {
	Run     string
	Outcome *lab.Outcome

	Damaged []Damage

	Parcels int
	Bytes   int64
	Spool   string
}

// Collect reads all parcels of a run and merges those that count ([lab.Choose]); see
// [Reader] for an empty run. of is how many shards there have to be, 0 where that is
// known from the parcels only.
//
// Parcels are put into the folder spool first, which has to exist, so that no more than
// a few are held in memory at a time, whatever the number of shards. The error wraps
// [ErrNone] or [ErrRuns], or [lab.ErrShards] where the shards are not of one run; then,
// Collected says what is known.
func Collect(ctx context.Context, r Reader, run string, of int, spool string, opts lab.MergeOptions) (Collected, error) {
	c := Collected{Run: run, Spool: spool}
	into := Folder(spool)
	var heads []Header
	var files []string
	damaged, err := r.Read(ctx, run, func(p Parcel) error {
		if err := into.put(p); err != nil {
			return err
		}
		heads, files = append(heads, p.Header), append(files, into.path(p))
		c.Parcels++
		c.Bytes += int64(len(p.Data))
		return nil
	})
	c.Damaged = damaged
	if err != nil {
		return c, err
	}
	if len(heads) == 0 {
		return c, ErrNone
	}
	c.Run = heads[0].Run
	if opts.Name == "" {
		opts.Name = c.Run
	}
	if err := sameProgram(heads, of); err != nil {
		return c, err
	}
	attempts := make([]lab.Attempt, len(heads))
	for i, h := range heads {
		attempts[i] = lab.Attempt{Index: h.Index, Number: h.Attempt, Pod: h.Pod, Started: h.Started, Finished: h.Finished}
	}
	chosen, passed, err := lab.Choose(attempts)
	if err != nil {
		return c, err
	}
	m := lab.NewMerger(opts)
	for _, i := range chosen {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		s, err := shardOf(files[i])
		if err == nil {
			err = m.Add(*s)
		}
		if err != nil {
			return c, err
		}
	}
	for _, i := range passed {
		s, err := shardOf(files[i])
		if err != nil {
			return c, err
		}
		m.PassOver(*s)
	}
	c.Outcome, err = m.Outcome()
	return c, err
}

// sameProgram refuses results of several programs before they are unpacked, which those
// of another program need not be able to be.
func sameProgram(heads []Header, of int) error {
	first := heads[0]
	for _, h := range heads {
		switch {
		case h.Commit != first.Commit:
			return &lab.MixedError{What: "the program's commit", A: first.Commit, IndexA: first.Index, B: h.Commit, IndexB: h.Index}
		case of > 0 && h.Of != of:
			return fmt.Errorf("%w: there are to be %d, and shard %d is one of %d", lab.ErrShards, of, h.Index, h.Of)
		}
	}
	return nil
}

func shardOf(path string) (*lab.Shard, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := Decode(data)
	if err != nil {
		return nil, err
	}
	return p.Shard()
}

// Keep moves the collected parcels into a folder, from which [Folder] reads them again.
func (c Collected) Keep(dir string) error {
	return filepath.WalkDir(c.Spool, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(c.Spool, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}
