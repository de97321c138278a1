// Package upload transfers the results of the pods of a load Job to `watchlab cluster collect`,
// through ConfigMaps: a pod needs the API server and the right to create them, and no storage.
//
//  1. [Encode] encodes a result as a [Bundle]: a [Header] and the compressed result.
//  2. [ConfigMaps.Upload] creates one immutable ConfigMap for each 900 kB of it.
//  3. [ConfigMaps.Read] joins the parts, verifies the checksum, and reports an incomplete or
//     changed result as [Damage].
//  4. [Collect] chooses one result for each pod and merges them ([lab.Merge]).
//
// A pod succeeds only after the API server has stored all parts, so what is lost with a pod is what it
// had not finished. The ConfigMaps have no owner: they outlive pod and Job, until `watchlab cluster
// clean`. The checksum is in their names, so a repeated upload has no effect.
//
// A result takes about 4 kB a round of a cell. The limit is etcd's quota, 2 GiB by default, for all pods.
package upload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"watchlab/bench/lab"
)

var (
	ErrBundle = errors.New("damaged result")      // wrapped by the error for a damaged bundle
	ErrNone   = errors.New("no result was found") // returned by [Collect] if there is no complete result
)

// Damage describes an incomplete or damaged bundle.
type Damage struct {
	Where string // name of a ConfigMap, or of the pod and its number
	Why   string // reason, in one line
}

func (d Damage) String() string { return d.Where + ": " + d.Why }

// Collected is the result of [Collect].
type Collected struct {
	Outcome *lab.Outcome // merged outcome of all pods
	Damaged []Damage     // incomplete and damaged bundles
	Bundles int          // number of complete bundles
}

// Collect reads all bundles of a run and merges one per pod ([lab.Merge]). of is the number of pods.
// It spools bundles in the existing directory dir, so that memory does not grow with the number of
// pods. The error wraps [ErrNone], or [lab.ErrShares] for bundles of different runs; Damaged is then
// known.
func Collect(ctx context.Context, from ConfigMaps, run string, of int, dir string, opts lab.MergeOptions) (c Collected, err error) {
	var heads []Header
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	c.Damaged, err = from.Read(ctx, run, func(b Bundle) error {
		heads = append(heads, b.Header)
		return os.WriteFile(file(len(heads)-1), b.contents, 0o600) // No sync: the cluster has the bundle.
	})
	if c.Bundles = len(heads); err != nil {
		return c, err
	}
	if c.Bundles == 0 {
		return c, ErrNone
	}
	attempts := make([]lab.Attempt, len(heads))
	for i, h := range heads {
		// Results of other builds may not decode.
		switch first := heads[0]; {
		case h.Commit != first.Commit:
			return c, lab.MixedError("the program's commit", first.Commit, first.Index, h.Commit, h.Index)
		case h.Of != of:
			return c, fmt.Errorf("%w: expected %d pods, but pod %d belongs to %d", lab.ErrShares, of, h.Index, h.Of)
		}
		attempts[i] = lab.Attempt{Index: h.Index, Number: h.Attempt, Pod: h.Pod, Started: h.Started, Finished: h.Finished}
	}
	c.Outcome, err = lab.Merge(attempts, func(i int) (*lab.Share, error) {
		data, err := os.ReadFile(file(i))
		if err = errors.Join(ctx.Err(), err); err != nil {
			return nil, err
		}
		return Bundle{heads[i], data}.Share()
	}, opts)
	return c, err
}
