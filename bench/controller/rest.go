package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
)

const (
	idleShare = 10 // of a core in percent, of a program that only renews leases and polls
	idleTimes = 3  // samples in a row without more
)

// rest waits until the program has taken all that was sent and does nothing, and returns its process then. The point is
// busy if that takes too long.
func (p *session) rest(ctx context.Context, of *Point) (record.Sample, error) {
	running := p.programs[0].running()
	before, idle := record.Sample{}, 0
	for began := time.Now(); ; {
		if err := p.wait(ctx, p.timing.steady); err != nil {
			return before, err
		}
		now, ok := running.Sample()
		if !ok {
			if p.ended() {
				return now, fmt.Errorf("%s ended: %s%s", p.program.Command[0], p.programs[0].status(), lastLines(p.programs[0].options))
			}
			return now, errors.New("the memory of a process is only known on Linux")
		}
		behind := slices.ContainsFunc(p.server.Lags(), func(l apiserver.Lag) bool { return l.Events > 0 })
		if idle++; behind || now.CPU-before.CPU > p.timing.steady*idleShare/100 || !p.server.Quiet() || time.Since(p.recorder.Activity().Changed) < p.timing.quiet {
			idle = 0
		}
		before = now
		late := time.Since(began) > p.spec.Settle.Duration
		if of.Busy = of.Busy || late; late || idle >= idleTimes {
			return now, nil
		}
	}
}

// relists are those of a point. The memory of the largest depends on when the program collected its garbage.
const relists = "relist:at=0s,every=%v,count=6"

// relist lets the program list all again, several times.
func (p *session) relist(ctx context.Context) error {
	if err := p.programs[0].running().ResetPeak(); err != nil {
		return err
	}
	open, _, err := p.server.Watches()
	if p.opened = open; err == nil {
		err = p.faults.Start()
	}
	if err == nil {
		err = p.wait(ctx, p.lastFault()+p.timing.steady)
	}
	if err != nil {
		return err
	}
	return p.reopened(ctx)
}
