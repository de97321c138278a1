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

// ErrLog is wrapped by the errors of [ReadLog] for invalid input.
var ErrLog = errors.New("not a log of histograms")

// Interval is the latency of one boundary in one round, as stored in a histogram log.
type Interval struct {
	Boundary Boundary      // the log's tag
	Round    int           // from 1
	Started  time.Time     // start of the round, in the log to the millisecond
	Elapsed  time.Duration // length of the round, in the log to the millisecond
	Quantiles
}

// exactFormat is the comment before each interval. It stores the exact figures, because
// a histogram stores its longest value to three digits. Other tools ignore comments.
const exactFormat = "[Exact: round %d, count %d, sum %d, min %d, max %d, clamped %d, negative %d]"

// WriteLog writes intervals as a HdrHistogram log (format 1.3). Its lines have
// Tag=boundary, start and length in seconds, longest value in milliseconds, and the
// histogram. HdrHistogram tools can read it, and [ReadLog] restores all figures
// exactly. The name becomes a comment at the head.
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

// oneLine removes line breaks, which would end a comment.
func oneLine(c rune) rune {
	if c == '\n' || c == '\r' {
		return ' '
	}
	return c
}

// ReadLog reads the output of [WriteLog]. Errors wrap [ErrLog] and name the line. For
// old logs without exact figures, maximum and mean are accurate to three digits, and
// the n-th interval of a boundary is round n.
func ReadLog(r io.Reader) ([]Interval, error) {
	// A histogram's line grows with its distinct values, to about 100 kB.
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

// readExact parses a comment; ok is false for a comment of another kind.
func readExact(comment string) (iv Interval, ok bool, err error) {
	if !strings.HasPrefix(comment, "[Exact:") {
		return Interval{}, false, nil
	}
	if _, err := fmt.Sscanf(comment, exactFormat, &iv.Round, &iv.Count, &iv.Sum, &iv.Min, &iv.Max, &iv.Clamped, &iv.Negative); err != nil {
		return Interval{}, false, fmt.Errorf("exact figures: %w", err)
	}
	return iv, true, nil
}

// readInterval parses [Tag=boundary,]start,length,longest,histogram.
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

// complete computes the quantiles from the histogram and the exact figures; exact may
// be nil.
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
