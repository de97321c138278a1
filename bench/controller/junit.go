package controller

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/controller/verdict"
)

// The elements of JUnit's XML, as its readers agree on them.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Errors    int         `xml:"errors,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Time      string      `xml:"time,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Cases     []junitCase `xml:"testcase"`
		took      time.Duration
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Classname string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Failure   *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the result as JUnit XML: a test suite per program, and a test case per play and
// verdict, whose time is its share of the play. A failure has the evidence.
func (r *Result) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "watchlab controller"}
	var took time.Duration
	for _, program := range r.Programs {
		s := r.junitSuite(program)
		all.Tests += s.Tests
		all.Failures += s.Failures
		took += s.took
		all.Suites = append(all.Suites, s)
	}
	all.Time = seconds(took)
	data, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	}
	return err
}

func (r *Result) junitSuite(program string) junitSuite {
	s := junitSuite{Name: program, Timestamp: r.Env.Started.UTC().Format("2006-01-02T15:04:05")}
	for i := range r.Plays {
		p := &r.Plays[i]
		if p.Program != program {
			continue
		}
		s.took += p.End
		for _, v := range p.Verdicts {
			c := junitCase{Name: v.Name, Classname: p.Name, Time: seconds(p.End / time.Duration(len(p.Verdicts)))}
			if v.Failed {
				s.Failures++
				c.Failure = &junitFailure{Message: v.Text, Type: v.Name, Text: strings.Join(r.failure(p, v), "\n")}
			}
			s.Cases = append(s.Cases, c)
		}
	}
	s.Tests, s.Time = len(s.Cases), seconds(s.took)
	return s
}

// failure returns the lines of a failed verdict: its text, the evidence, and how to play it again.
func (r *Result) failure(p *Play, v verdict.Verdict) []string {
	lines := []string{v.Text}
	for _, e := range v.Evidence {
		lines = append(lines, fmt.Sprintf("at %ss: %s", seconds(e.At), e.Text))
		if e.Why != "" {
			lines = append(lines, e.Why)
		}
	}
	if s := r.Shrunk; s != nil && s.Verdict == v.Name && s.Plan == p.Plan {
		lines = append(lines, fmt.Sprintf("smallest plan that fails (%d of %d plays): %s", s.Failed, s.Repeated,
			cmp.Or(strings.Join(s.Faults, " "), "no faults")), s.Command)
	}
	if p.Folder != "" {
		lines = append(lines, "requests and logs: "+p.Folder)
	}
	return lines
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
