package cell

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// faults is a software event of the kernel. With it, the test runs on machines without
// processor counters.
var faults = event{"faults", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS}

// TestThreadsCountedOnce: existing, new and ended threads are counted once.
func TestThreadsCountedOnce(t *testing.T) {
	p := openEvents([]event{faults})
	if p == nil {
		t.Skip("the kernel counts nothing for this process")
	}
	if open := len(p[0].fds); open < 2 {
		t.Errorf("%d threads opened of %d", open, len(threads()))
	}
	const threads, pages = 8, 512
	p.on()
	before := readRusage()
	var done sync.WaitGroup
	for range threads {
		done.Go(func() {
			runtime.LockOSThread() // The thread ends with the goroutine.
			touch(t, pages)
		})
	}
	done.Wait()
	after := readRusage()
	p.off()
	notes := p.close()
	if len(notes) != 1 {
		t.Fatalf("%+v", notes)
	}
	// Both counts include the runtime's own page faults, with small differences.
	kernel := float64(after.faults - before.faults)
	if got := notes[0].Value; got < threads*pages || got > kernel*1.1+100 {
		t.Errorf("%v faults by thread, %v by process; %d pages were touched", got, kernel, threads*pages)
	}
}

// touch allocates pages from the system one by one and returns them.
func touch(t *testing.T, pages int) {
	block, err := unix.Mmap(-1, 0, pages*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Error(err)
		return
	}
	_ = unix.Madvise(block, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	if err := unix.Munmap(block); err != nil {
		t.Error(err)
	}
}

// TestMemoryOfMeasurement: the peak excludes memory that was resident before the
// measurement, and includes memory that is resident only briefly.
func TestMemoryOfMeasurement(t *testing.T) {
	const size = 128 << 20
	measure := func(do func()) Memory {
		rec := Alone()
		rec.Begin()
		do()
		rec.End()
		rec.Count(1, 1)
		got, err := rec.Result()
		if err != nil {
			t.Fatal(err)
		}
		return *got.Memory
	}
	if m := measure(func() { touch(t, size/4096) }); m.PeakRSSBytes < size || m.PeakHeapBytes > size {
		t.Errorf("%+v after touching 128 MB outside the heap", m)
	}
	if m := measure(func() {}); m.PeakRSSBytes > size {
		t.Errorf("%+v after returning 128 MB", m)
	}
}

func TestNoSuchCounter(t *testing.T) {
	p := openEvents([]event{{"none", 0xffff, 0}})
	if p != nil {
		t.Errorf("%+v", p)
	}
	p.on()
	p.off()
	if notes := p.close(); notes != nil {
		t.Errorf("%+v", notes)
	}
}
