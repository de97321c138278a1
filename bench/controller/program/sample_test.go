package program_test

import (
	"runtime"
	"testing"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/record"
)

func sample(t *testing.T, p *program.Program) record.Sample {
	t.Helper()
	s, ok := p.Sample()
	if !ok {
		if runtime.GOOS != "linux" {
			t.Skip("no /proc")
		}
		t.Fatal("no sample")
	}
	return s
}

// TestSample: the sums count children, and the CPU time of those that have ended. A child that the kernel has
// not yet given its program has next to no memory.
func TestSample(t *testing.T) {
	l := newLines(t)
	p := start(t, program.Options{Client: "new-0", Dir: l.dir, Command: append(shell(`
		exec 5>$0; echo >&5; read go <$1; sleep 60 & sleep 60 & echo >&5; read go <$1
		(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo >&5; wait`), "{dir}/pipe", l.second())})
	l.next()
	one := sample(t, p)
	if one.Client != "new-0" || one.Files < 3 || one.RSS <= 0 {
		t.Errorf("%+v", one)
	}
	l.send()
	l.next()
	three := sample(t, p)
	if three.Files <= one.Files || three.RSS < one.RSS {
		t.Errorf("%+v with two children, %+v without", three, one)
	}
	l.send()
	l.next()
	if worked := sample(t, p); worked.CPU <= three.CPU {
		t.Errorf("%+v after a child that has ended, %+v before", worked, three)
	}
	p.Kill()
	p.Exit()
	if s, ok := p.Sample(); ok {
		t.Errorf("%+v after the end", s)
	}
}
