package cell

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ErrLog is wrapped by the errors of [ReadLog] for what is no log.
var ErrLog = errors.New("not a log of histograms")

// Interval is one boundary's latency in one round, as a log of histograms keeps
// it.
type Interval struct {
	Boundary Boundary
	Round    int
	Started  time.Time
	Elapsed  time.Duration
	Quantiles
}

// exactFormat is the comment before each interval. A histogram knows its longest
// value to three digits, and every tool passes over comments: so what is exact
// stands there.
const exactFormat = "[Exact: round %d, count %d, sum %d, min %d, max %d, clamped %d, negative %d]"

// WriteLog writes intervals as a HdrHistogram log (format 1.3): lines of
// Tag=boundary, start and length in seconds, longest in milliseconds, histogram.
// Every tool for such logs reads it; [ReadLog] gets all back exactly. The name
// stands at the head as a comment.
func WriteLog(w io.Writer, name string, intervals []Interval) error {
	log := hdrhistogram.NewHistogramLogWriter(w)
	err := errors.Join(
		log.OutputLogFormatVersion(),
		log.OutputComment(strings.Map(oneLine, name)),
		log.OutputLegend())
	for _, iv := range intervals {
		if strings.ContainsFunc(string(iv.Boundary), badInUnit) {
			return fmt.Errorf("round %d: a log can't hold a boundary named %q", iv.Round, iv.Boundary)
		}
		h, derr := decode(iv.Histogram)
		if derr != nil {
			return fmt.Errorf("round %d, %s: %w", iv.Round, iv.Boundary, derr)
		}
		h.SetTag(string(iv.Boundary))
		h.SetStartTimeMs(iv.Started.UnixMilli())
		h.SetEndTimeMs(iv.Started.Add(iv.Elapsed).UnixMilli())
		err = errors.Join(err,
			log.OutputComment(fmt.Sprintf(exactFormat, iv.Round, iv.Count, iv.Sum, iv.Min, iv.Max, iv.Clamped, iv.Negative)),
			log.OutputIntervalHistogram(h))
	}
	return err
}

// oneLine keeps a comment from ending early.
func oneLine(c rune) rune {
	if c == '\n' || c == '\r' {
		return ' '
	}
	return c
}

// ReadLog reads what [WriteLog] wrote. The error wraps [ErrLog] and names the
// line. Of an older log, without the exact figures, the longest and the mean are
// within three digits, and rounds are counted by how often a boundary comes.
func ReadLog(r io.Reader) ([]Interval, error) {
	// A histogram's line is as long as it has distinct values: some 100 kB at most.
	const longest = 16 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	var (
		out    []Interval
		exact  *Interval
		rounds = map[Boundary]int{}
	)
	number := 0
	for lines.Scan() {
		number++
		line := lines.Text()
		switch {
		case line == "" || strings.HasPrefix(line, `"`):
			continue
		case strings.HasPrefix(line, "#"):
			e, ok, err := readExact(line[1:])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w: %w", number, ErrLog, err)
			}
			if ok {
				exact = &e
			}
			continue
		}
		iv, err := readInterval(line)
		if err == nil {
			rounds[iv.Boundary]++
			err = complete(&iv, exact, rounds[iv.Boundary])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", number, ErrLog, err)
		}
		out, exact = append(out, iv), nil
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after line %d: %w", number, err)
	}
	return out, nil
}

// readExact reads a comment; ok is false for any other.
func readExact(comment string) (iv Interval, ok bool, err error) {
	if !strings.HasPrefix(comment, "[Exact:") {
		return Interval{}, false, nil
	}
	if _, err := fmt.Sscanf(comment, exactFormat, &iv.Round, &iv.Count, &iv.Sum, &iv.Min, &iv.Max, &iv.Clamped, &iv.Negative); err != nil {
		return Interval{}, false, fmt.Errorf("exact figures: %w", err)
	}
	return iv, true, nil
}

// readInterval reads [Tag=boundary,]start,length,longest,histogram.
func readInterval(line string) (Interval, error) {
	var iv Interval
	if rest, ok := strings.CutPrefix(line, "Tag="); ok {
		var tag string
		if tag, line, ok = strings.Cut(rest, ","); !ok {
			return Interval{}, errors.New("a tag and nothing more")
		}
		iv.Boundary = Boundary(tag)
	}
	fields := strings.Split(line, ",")
	if len(fields) != 4 {
		return Interval{}, fmt.Errorf("%d fields, not start, length, longest and histogram", len(fields))
	}
	var seconds [2]float64
	for i := range seconds {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil || math.IsNaN(v) || math.Abs(v) > 1e12 {
			return Interval{}, fmt.Errorf("%q is no time in seconds", fields[i])
		}
		seconds[i] = v
	}
	iv.Started = time.UnixMilli(int64(math.Round(seconds[0] * 1000))).UTC()
	iv.Elapsed = time.Duration(math.Round(seconds[1]*1000)) * time.Millisecond
	iv.Histogram = fields[3]
	return iv, nil
}

// complete works the quantiles out of the histogram and the exact figures beside
// it; exact is nil where there are none.
func complete(iv *Interval, exact *Interval, round int) error {
	h, err := decode(iv.Histogram)
	if err != nil {
		return err
	}
	iv.Round = round
	t := tally{sum: approximateSum(h), min: time.Duration(h.Min()), max: time.Duration(h.Max())}
	if exact != nil {
		if uint64(h.TotalCount()) != exact.Count {
			return fmt.Errorf("the histogram holds %d values, not %d", h.TotalCount(), exact.Count)
		}
		iv.Round = exact.Round
		t = tally{sum: exact.Sum, min: exact.Min, max: exact.Max, clamped: exact.Clamped, negative: exact.Negative}
	}
	iv.Quantiles = quantilesOf(h, t, iv.Histogram)
	return nil
}
