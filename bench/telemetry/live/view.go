package live

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/lab"
)

// State is the state of a run that the page shows.
type State struct {
	Begun             bool // a cell has started
	Round, Rounds     int  // Round 0 is the warm-up; Rounds is 0 with a budget
	Share             float64
	Left              time.Duration // estimated; 0 while unknown
	Answer            template.HTML // first screen of the report, from the rounds so far
	Over, Interrupted bool
	Report            func(io.Writer) error // writes the report as a page; nil for none
}

// message updates a page: the content of elements by their ids, as HTML.
type message struct {
	Title string            `json:"title"`
	Over  bool              `json:"over"`
	Parts map[string]string `json:"parts"`
}

//go:embed parts.html
var partsHTML string

var partForms = template.Must(template.New("").Funcs(template.FuncMap{
	"percent": func(share float64) string { return strconv.Itoa(int(share*100)) + " %" },
}).Parse(partsHTML))

// scene is the data of the templates.
type scene struct {
	State
	Run, Now string
}

// message renders the page.
func (r *Registry) message() (message, error) {
	r.mu.Lock()
	s := &scene{State: r.state, Run: r.run}
	sets := slices.Clone(r.sets)
	r.mu.Unlock()
	for _, set := range sets {
		labels := set.Labels()
		set.mu.Lock()
		if set.phase != Idle {
			s.Now = "Playing " + labels.Variant + " " + lab.RateText(labels.Rate) + "."
		}
		set.mu.Unlock()
	}
	out := message{Title: fmt.Sprintf("%s · watchlab %s", s.Status(), s.Run), Over: s.Over, Parts: map[string]string{}}
	for _, t := range partForms.Templates() {
		if t.Name() == "" {
			continue
		}
		var b strings.Builder
		if err := t.Execute(&b, s); err != nil {
			return out, err
		}
		out.Parts[t.Name()] = strings.TrimSpace(b.String())
	}
	return out, nil
}

// Status is the state in a sentence.
func (s *scene) Status() string {
	switch {
	case s.Interrupted:
		return "The run was interrupted."
	case s.Over:
		return "The run has finished."
	case !s.Begun:
		return "Waiting for the first round."
	case s.Round == 0:
		return "Warm-up."
	case s.Rounds == 0:
		return fmt.Sprintf("Round %d.", s.Round)
	}
	return fmt.Sprintf("Round %d of %d.", s.Round, s.Rounds)
}

// Remaining writes the time left; empty while it is unknown.
func (s *scene) Remaining() string {
	if s.Left <= 0 || s.Over {
		return ""
	}
	return s.Left.Round(time.Second).String() + " left"
}
