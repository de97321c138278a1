package upload

import (
	"context"
	"errors"
	"fmt"
	"os"

	"watchlab/bench/lab"
)

var ErrNone = errors.New("no result was found") // returned by [Collect] if there is no complete result

// Collected is the result of [Collect].
type Collected struct {
	Run     string       // name of the run
	Outcome *lab.Outcome // merged outcome of all pods
	Damaged []Damage     // incomplete and damaged bundles
	Bundles int          // number of bundles read
	Spool   string       // directory that holds them
}

// Collect reads all bundles of a run and merges one per pod ([lab.Merge]). For an
// empty name see [Reader]. of is the expected number of pods, or 0 if unknown.
//
// Collect first stores the bundles in the existing directory spool, so that memory does not grow
// with the number of pods. The error wraps [ErrNone], [ErrRuns], or [lab.ErrShares] for bundles of
// different runs. Collected then holds the fields known so far.
func Collect(ctx context.Context, r Reader, run string, of int, spool string, opts lab.MergeOptions) (Collected, error) {
	c := Collected{Run: run, Spool: spool}
	into := Dir(spool)
	var heads []Header
	var files []string
	var err error
	c.Damaged, err = r.Read(ctx, run, func(p Bundle) error {
		path, err := into.create(p)
		if err != nil {
			return err
		}
		heads, files = append(heads, p.Header), append(files, path)
		return os.WriteFile(path, p.Data, 0o644) // No sync: the source has the bundle.
	})
	if c.Bundles = len(heads); err != nil {
		return c, err
	}
	if c.Bundles == 0 {
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
	c.Outcome, err = lab.Merge(attempts, func(i int) (*lab.Share, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return resultIn(files[i])
	}, opts)
	return c, err
}

// sameProgram rejects results of different builds before they are decoded: they may be
// incompatible.
func sameProgram(heads []Header, of int) error {
	first := heads[0]
	for _, h := range heads {
		switch {
		case h.Commit != first.Commit:
			return lab.MixedError("the program's commit", first.Commit, first.Index, h.Commit, h.Index)
		case of > 0 && h.Of != of:
			return fmt.Errorf("%w: expected %d pods, but pod %d belongs to %d", lab.ErrShares, of, h.Index, h.Of)
		}
	}
	return nil
}

func resultIn(path string) (*lab.Share, error) {
	data, err := lab.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := Decode(data)
	if err != nil {
		return nil, err
	}
	return p.PodResult()
}
