package report_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"watchlab/bench/compare"
	"watchlab/bench/controller"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// FuzzFolder: run.json and env.json are refused, or every page of the run is written or refused.
func FuzzFolder(f *testing.F) {
	for _, o := range []*lab.Outcome{goldenRun(), fixture()} {
		var run bytes.Buffer
		if err := lab.EncodeJSON(&run, o); err != nil {
			f.Fatal(err)
		}
		env, err := json.Marshal(o.Env)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(run.Bytes(), env, "BenchmarkQueue/impl=a 1 2 ns/op\n")
	}
	head := `{"format":` + string(rune('0'+lab.Format)) + `,"comparisons":`
	for _, s := range []string{
		"[]}", "[{}]}", `[{"cells":[{},{}]}]}`, `[{"cells":[{"rounds":[{"round":-1}],"verdict":{"status":"valid"}}]}]}`,
		`[{"cells":[{"name":"Queue","labels":[{"key":"rate","value":"1e999"}],"baseline":true,"rounds":[{"result":{"latency":[{"boundary":"a"}]}}]}]}],"knees":[{}],"scalings":[{},{"fit":{"peak":1}}],"merged":{"of":-1,"missing":[9]}}`,
	} {
		f.Add([]byte(head+s), []byte("{}"), "")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, run, env []byte, bench string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		for name, data := range map[string][]byte{lab.RunFile: run, lab.EnvFile: env, lab.BenchFile: []byte(bench)} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o, err := lab.Load(dir)
		if err != nil {
			return
		}
		for _, write := range []func(io.Writer, *lab.Outcome) error{report.Table, report.Brief, report.Markdown, report.HTML} {
			_ = write(io.Discard, o)
		}
		_ = o.WriteBench(io.Discard)
		if side, err := compare.OpenRun(dir); err == nil {
			_ = compare.Compare([]*compare.Run{side, side}).Text(io.Discard)
			if rules, _, err := compare.ReadRules(""); err == nil {
				_, _ = compare.Gate(side, side, "rules", rules, false)
			}
		}
	})
}

// FuzzControllerResult: the result of a controller is refused, or its pages are written or refused.
func FuzzControllerResult(f *testing.F) {
	var whole bytes.Buffer
	if err := lab.EncodeJSON(&whole, controllerRun()); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	for _, s := range []string{"{}", `{"plays":[{}],"compared":[{}],"shrunk":{},"programs":["new","old"]}`, `{"plays":[{"latencies":[{}],"requests":[{}],"series":[{}],"verdicts":[{"failed":true}]}]}`} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		if err := os.WriteFile(filepath.Join(dir, controller.ResultFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := controller.ReadResult(dir)
		if err != nil {
			return
		}
		_ = report.ControllerMarkdown(io.Discard, o)
		_ = report.ControllerHTML(io.Discard, o)
		_ = o.WriteBench(io.Discard)
	})
}
