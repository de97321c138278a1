package cell

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ErrLog is wrapped by the errors of [ReadLog] for invalid input.
var ErrLog = errors.New("not a log of histograms")

// Interval is the latency of one boundary in one round, as stored in a histogram log.
type Interval struct {
	Boundary  Boundary      // the log's tag
	Started   time.Time     // start of the round, in the log to the millisecond
	Elapsed   time.Duration // length of the round, in the log to the millisecond
	Histogram string        // see [Quantiles].Histogram
}

// WriteLog writes intervals as a HdrHistogram log (format 1.3). Its lines have
// Tag=boundary, start and length in seconds, longest value in milliseconds, and the
// histogram. HdrHistogram tools can read it. The name becomes a comment at the head.
func WriteLog(w io.Writer, name string, intervals []Interval) error {
	log := hdrhistogram.NewHistogramLogWriter(w)
	err := cmp.Or(
		log.OutputLogFormatVersion(),
		log.OutputComment(strings.NewReplacer("\n", " ", "\r", " ").Replace(name)), // a line break ends a comment
		log.OutputLegend())
	for _, iv := range intervals {
		if err != nil {
			return err
		}
		if strings.ContainsAny(string(iv.Boundary), " \t\r\n,\"") {
			return fmt.Errorf("%s: a log can't hold a boundary named %q", name, iv.Boundary)
		}
		h, derr := decode(iv.Histogram)
		if derr != nil {
			return fmt.Errorf("%s, %s: %w", name, iv.Boundary, derr)
		}
		h.SetTag(string(iv.Boundary))
		h.SetStartTimeMs(iv.Started.UnixMilli())
		h.SetEndTimeMs(iv.Started.Add(iv.Elapsed).UnixMilli())
		err = log.OutputIntervalHistogram(h)
	}
	return err
}

// ReadLog reads the histograms of each boundary from the output of [WriteLog], in its order. Only
// Count and Histogram are set: a log has no exact figures. Errors wrap [ErrLog] and name the line.
func ReadLog(r io.Reader) (map[Boundary][]Quantiles, error) {
	// A histogram's line grows with its distinct values, to about 100 kB.
	const longest = 16 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	all := map[Boundary][]Quantiles{}
	number := 0
	for lines.Scan() {
		number++
		line := lines.Text()
		if line == "" || line[0] == '"' || line[0] == '#' {
			continue
		}
		// Tag=boundary,start,length,longest,histogram
		fields := strings.Split(line, ",")
		tag, ok := strings.CutPrefix(fields[0], "Tag=")
		if !ok || len(fields) != 5 {
			return nil, fmt.Errorf("line %d: %w: not tag, start, length, longest and histogram", number, ErrLog)
		}
		h, err := decode(fields[4])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", number, ErrLog, err)
		}
		all[Boundary(tag)] = append(all[Boundary(tag)], Quantiles{Count: uint64(h.TotalCount()), Histogram: fields[4]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after line %d: %w", number, err)
	}
	return all, nil
}
