package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if code, _, errs := call(t, with(small, "--impl", "cond", "--pace", "max,20000", "--lag-budget", "1h", "--out", dir)...); code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	read := func(name string) string {
		data := must(os.ReadFile(filepath.Join(dir, name)))(t)
		return string(data)
	}
	run := read(lab.RunFile)
	for _, name := range []string{lab.ReportFile, report.HTMLFile} {
		if !strings.Contains(read(name), "cond") {
			t.Errorf("a run's %s doesn't name its variant", name)
		}
		noError(t, os.Remove(filepath.Join(dir, name)))
	}

	// To standard output, without a file.
	for form, want := range map[string]string{
		"html": "<!DOCTYPE html>", "markdown": "## Method", "json": `"comparisons"`, "bench": "BenchmarkDeltaFIFO/impl=cond", "table": "events/s",
	} {
		code, out, errs := call(t, "report", dir, "-o", form)
		if code != exitOK || !strings.Contains(out, want) || errs != "" {
			t.Errorf("%s: exit code %d, stderr %q, %d bytes without %q", form, code, errs, len(out), want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, report.HTMLFile)); err == nil {
		t.Error("-o wrote into the folder")
	}

	code, out, errs := call(t, "report", dir)
	if code != exitOK || out != "" || !strings.Contains(errs, report.HTMLFile) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	// The report has its charts without the process that measured them.
	if got := read(report.HTMLFile); !strings.Contains(got, `data-kind="stages"`) {
		t.Error("the page that is made again has no stages")
	}
	if !strings.Contains(read(lab.ReportFile), "cond") || read(lab.RunFile) != run {
		t.Error("report.md is not back, or run.json has changed")
	}
}

// TestReportOfController: the folder of watchlab controller has reports of its own.
func TestReportOfController(t *testing.T) {
	dir := t.TempDir()
	o := controller.Result{Sentence: "The controller passes.", Programs: []string{"new"}, Plays: []controller.Play{{
		Play: record.Play{Program: "new"}, Plan: "none", Round: 1, Verdicts: []verdict.Verdict{{Name: verdict.HotLoop}},
	}}}
	var b bytes.Buffer
	noError(t, lab.EncodeJSON(&b, o))
	noError(t, os.WriteFile(filepath.Join(dir, controller.ResultFile), b.Bytes(), 0o644))
	if code, _, errs := call(t, "report", dir, "-o", "json"); code != exitUsage || !strings.Contains(errs, "--output") {
		t.Errorf("with -o: exit code %d, stderr %q", code, errs)
	}
	if code, out, errs := call(t, "report", dir); code != exitOK || out != "" || !strings.Contains(errs, report.HTMLFile) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	for _, name := range []string{lab.ReportFile, report.HTMLFile} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data), "The controller passes.") {
			t.Errorf("%s: %v, %d bytes", name, err, len(data))
		}
	}
}
