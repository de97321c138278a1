package cell

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perf counts processor events of all threads of the process; see perf_event_open(2).
//
// The kernel counts per thread. perf opens each existing thread, and new threads
// inherit the event. Opening and reading take a few µs per thread, outside the
// measurement. With counters on, a thread switch costs slightly more.
type perf []counter

type counter struct {
	unit string
	fds  []int // one for each thread
}

type event struct {
	unit   string
	kind   uint32
	config uint64
}

// hardware are the events by the unit of their figures. Every processor can count these
// four at once, so the kernel need not multiplex and estimate.
var hardware = []event{
	{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	{"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	{"branch-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_MISSES},
}

// openPerf opens the counters that the kernel allows: all modes, user mode only, or
// none, as in most virtual machines and containers.
func openPerf() perf { return openEvents(hardware) }

func openEvents(events []event) perf {
	for _, bits := range []uint64{0, unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv} {
		var p perf
		for _, e := range events {
			fds := openThreads(e, bits)
			if fds == nil {
				continue
			}
			unit := e.unit
			if bits != 0 {
				unit = "user-" + unit
			}
			p = append(p, counter{unit, fds})
		}
		if p != nil {
			return p
		}
	}
	return nil
}

// openThreads opens a disabled event for each thread of the process; nil if a thread
// cannot be opened.
func openThreads(e event, bits uint64) []int {
	// A thread that starts meanwhile may or may not have inherited the event. Close all
	// and try again.
	const attempts = 5
	for range attempts {
		before := threads()
		fds, err := openEach(e, bits, before)
		if err != nil {
			return nil
		}
		if !slices.ContainsFunc(threads(), func(tid int) bool { return !slices.Contains(before, tid) }) {
			return fds
		}
		closeAll(fds)
	}
	return nil
}

func threads() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

func openEach(e event, bits uint64, tids []int) ([]int, error) {
	attr := unix.PerfEventAttr{
		Type: e.kind, Config: e.config,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits:        unix.PerfBitDisabled | unix.PerfBitInherit | bits,
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	var fds []int
	for _, tid := range tids {
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) {
			continue // The thread has ended.
		}
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		// There are no writes to lose.
		_ = unix.Close(fd)
	}
}

// on and off enable and disable the counters.
func (p perf) on()  { p.switchTo(unix.PERF_EVENT_IOC_ENABLE) }
func (p perf) off() { p.switchTo(unix.PERF_EVENT_IOC_DISABLE) }

func (p perf) switchTo(request uint) {
	for _, c := range p {
		for _, fd := range c.fds {
			_ = unix.IoctlSetInt(fd, request, 0) // close sees that it never ran.
		}
	}
}

// close reads and closes the counters. It omits a counter that was multiplexed with
// others, because its value would be an estimate.
func (p perf) close() (notes []Note) {
	for _, c := range p {
		if v, ok := readCounters(c.fds); ok {
			notes = append(notes, Note{Unit: c.unit, Value: float64(v)})
		}
		closeAll(c.fds)
	}
	return notes
}

// readCounters adds up the counts of the opened threads and of those that inherited the event.
func readCounters(fds []int) (sum uint64, ok bool) {
	for _, fd := range fds {
		var buf [24]byte // value, time enabled, time running
		if n, err := unix.Read(fd, buf[:]); err != nil || n != len(buf) {
			return 0, false
		}
		value := binary.NativeEndian.Uint64(buf[:])
		enabled, running := binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:])
		if running != enabled {
			return 0, false
		}
		sum += value
	}
	return sum, sum > 0
}
