package controller

import (
	"time"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
)

// Quick shortens the times of plays.
func (o *Options) Quick() {
	o.timing = timing{
		steady: 200 * time.Millisecond, quiet: 500 * time.Millisecond, tail: 100 * time.Millisecond,
		sampling: 50 * time.Millisecond, grace: time.Minute,
	}
}

// Finish computes what follows from all plays.
func (o *Result) Finish() { o.finish() }

// Summarise computes the figures of a record.
func (p *Play) Summarise(reactions []rules.Reaction) error { return p.summarise(reactions) }

// CommandOf is the command that plays faults again.
func (s Spec) CommandOf(program Program, faults []string, seed int64) string {
	return s.command(program, faults, seed)
}

// Explored returns the plans that a play suggests.
func Explored(p *record.Play) (texts []string) {
	for _, pl := range explored(p) {
		texts = append(texts, pl.text())
	}
	return texts
}
