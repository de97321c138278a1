package report_test

import (
	"bytes"
	"encoding/xml"
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func html(t *testing.T, o *lab.Outcome) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// figuresOf counts the page's charts by kind.
func figuresOf(page string) map[string]int {
	kinds := map[string]int{}
	for _, m := range regexp.MustCompile(`data-kind="([a-z]+)"`).FindAllStringSubmatch(page, -1) {
		kinds[m[1]]++
	}
	return kinds
}

// TestHTMLShowsRun checks the parts of the page and their order.
func TestHTMLShowsRun(t *testing.T) {
	page := html(t, fixture())
	at := 0
	for _, id := range []string{"answer", "knees", "scaling", "c1", "c2", "loses", "verdict", "method", "environment", "reproduce"} {
		i := strings.Index(page, `<section id="`+id+`"`)
		if i < at {
			t.Errorf("section %s is at %d, after %d", id, i, at)
		}
		at = i
	}
	got := figuresOf(page)
	for kind, want := range map[string]int{
		"answer": 1, "tail": 2, "rate": 1, "stages": 2, "scaling": 2,
	} {
		if got[kind] != want {
			t.Errorf("%d charts of kind %s, want %d", got[kind], kind, want)
		}
	}
	for _, want := range []string{
		"rate=max: 1 event of default/pod-7", "Seed 7 draws the order", "commit <code>0123456789ab</code>",
		"watchlab run --family deltafifo", "p99 ≤ 1ms",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestHTMLSelfContained checks that the page loads no other resource.
func TestHTMLSelfContained(t *testing.T) {
	page := html(t, fixture())
	for _, m := range regexp.MustCompile(`(?:src|href|url|xlink:href)\s*[=(]\s*["']?([^"')> ]+)`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "data:") {
			t.Errorf("the page loads %s", m[1])
		}
	}
	if !strings.Contains(page, `default-src 'none'`) {
		t.Error("the page lacks a content security policy")
	}
}

// TestHTMLOmitsInvalid checks that the page shows nothing of a broken row, even
// though its paced cell is valid.
func TestHTMLOmitsInvalid(t *testing.T) {
	const poison = 765432
	for _, broken := range []bool{false, true} {
		o := fixture()
		c := &o.Comparisons[0]
		for i := range c.Cells {
			cl := &c.Cells[i]
			if cl.Label("impl") != "ring" {
				continue
			}
			if _, paced := cl.Rate(); !paced {
				if broken {
					cl.Verdict = lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost}
					cl.Rounds, cl.Latency, cl.Medians = nil, nil, nil
				}
				continue
			}
			for j := range cl.Rounds {
				cl.Rounds[j].Result.Notes = []cell.Note{{Unit: "figure", Value: poison}}
			}
		}
		if found := strings.Contains(html(t, o), strconv.Itoa(poison)); found == broken {
			t.Errorf("broken: %v, and its figure on the page: %v", broken, found)
		}
	}
}

// TestHTMLEscapes checks that names with markup are escaped.
func TestHTMLEscapes(t *testing.T) {
	o := fixture()
	const nasty = `<script>alert(1)</script>`
	o.Name = nasty
	o.Comparisons[0].Title = nasty
	o.Env.Args = []string{nasty}
	for i := range o.Comparisons[0].Cells {
		o.Comparisons[0].Cells[i].Labels[2].Value = nasty
		o.Comparisons[0].Cells[i].Labels[0].Value += `"><img src=x>`
		o.Comparisons[0].Cells[i].Verdict.Detail = nasty
	}
	page := html(t, o)
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	if strings.Contains(page, "<img") {
		t.Error("a variant's name became an element")
	}
}

// TestHTMLSmallRun checks the page of nearly empty runs.
func TestHTMLSmallRun(t *testing.T) {
	unplayed := lab.Verdict{Status: lab.Unplayed, Detail: "the run ended before it finished a round"}
	for name, o := range map[string]*lab.Outcome{
		"nothing":  {},
		"no cells": {Comparisons: []lab.ComparisonResult{{Family: "queue"}}},
		"unplayed": {Rounds: 5, Interrupted: true, Comparisons: []lab.ComparisonResult{{Family: "queue", Cells: []lab.CellResult{{Name: "Queue", Verdict: unplayed}}}}},
		"golden":   goldenRun(),
	} {
		t.Run(name, func(t *testing.T) {
			page := html(t, o)
			for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
				if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
					t.Errorf("%v in %s", err, svg)
				}
			}
			if o.Interrupted && !strings.Contains(page, "Interrupted: ") {
				t.Error("the page does not show the interruption")
			}
		})
	}
}

var (
	pageFile       = flag.String("page", "", "write the fixture's page to this file")
	controllerFile = flag.String("controller-page", "", "write the page of a controller's run to this file")
)

// TestFixturePage writes the pages that bench/e2e/browser opens in a browser.
func TestFixturePage(t *testing.T) {
	if *pageFile == "" {
		t.Skip("no -page")
	}
	for name, page := range map[string]string{*pageFile: html(t, fixture()), *controllerFile: controllerPage(t, controllerRun())} {
		if name == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
