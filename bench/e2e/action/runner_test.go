package action

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A workflow has jobs of steps, and an action has steps of its own.
type (
	workflow struct {
		Name string         `yaml:"name"`
		On   any            `yaml:"on"`
		Jobs map[string]job `yaml:"jobs"`
	}
	job struct {
		RunsOn string `yaml:"runs-on"`
		Steps  []step `yaml:"steps"`
	}
	step struct {
		Name  string            `yaml:"name"`
		ID    string            `yaml:"id"`
		If    string            `yaml:"if"`
		Uses  string            `yaml:"uses"`
		With  map[string]string `yaml:"with"`
		Run   string            `yaml:"run"`
		Shell string            `yaml:"shell"`
		Env   map[string]string `yaml:"env"`
	}
	compositeAction struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		Inputs      map[string]struct {
			Description string `yaml:"description"`
			Required    bool   `yaml:"required"`
			Default     string `yaml:"default"`
		} `yaml:"inputs"`
		Outputs map[string]struct {
			Description string `yaml:"description"`
			Value       string `yaml:"value"`
		} `yaml:"outputs"`
		Runs struct {
			Using string `yaml:"using"`
			Steps []step `yaml:"steps"`
		} `yaml:"runs"`
	}
)

// runner stands in for GitHub's runner: it runs the steps of a job with bash, reads the files that they write,
// and collects annotations.
type runner struct {
	t         *testing.T
	workspace string
	temp      string
	actions   map[string]string // folders of actions by the name in uses
	env       map[string]string // from GITHUB_ENV

	failed      bool
	annotations []annotation
	summary     string
	log         string
}

// annotation is a workflow command.
type annotation struct{ kind, title, text string }

func newRunner(t *testing.T, actions map[string]string) *runner {
	return &runner{t: t, workspace: t.TempDir(), temp: t.TempDir(), actions: actions, env: map[string]string{}}
}

// run runs the only job of a workflow and returns whether it succeeded.
func (r *runner) run(text string) bool {
	r.t.Helper()
	var w workflow
	if err := strict([]byte(text), &w); err != nil {
		r.t.Fatal(err)
	}
	for _, j := range w.Jobs {
		if _, err := r.steps(j.Steps, map[string]string{}); err != nil {
			r.t.Fatalf("%v\n%s", err, r.log)
		}
	}
	return !r.failed
}

// strict decodes YAML. In YAML 1.1, which package sigs.k8s.io/yaml reads, on is true.
func strict(data []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	return dec.Decode(into)
}

// steps runs steps in turn and returns the names that they have set, for the outputs of an action.
func (r *runner) steps(steps []step, names map[string]string) (map[string]string, error) {
	known := maps.Clone(names)
	known["github.workspace"], known["runner.temp"], known["cancelled()"], known["always()"] = r.workspace, r.temp, "false", "true"
	for i, s := range steps {
		known["success()"], known["failure()"] = fmt.Sprint(!r.failed), fmt.Sprint(r.failed)
		name := s.Name
		if name == "" {
			name = fmt.Sprint("step ", i+1)
		}
		condition := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(s.If), "${{"), "}}")
		if !status.MatchString(condition) {
			if condition = strings.TrimSpace(condition); condition == "" {
				condition = "success()"
			} else {
				condition = "success() && (" + condition + ")"
			}
		}
		due, err := evaluate(condition, known)
		if err != nil {
			return nil, fmt.Errorf("%s: if: %w", name, err)
		}
		if !isTrue(due) {
			r.log += fmt.Sprintf("## %s is skipped\n", name)
			continue
		}
		r.log += fmt.Sprintf("## %s\n", name)
		var outputs map[string]string
		if s.Uses != "" {
			outputs, err = r.use(s, known)
		} else {
			outputs, err = r.bash(s, known)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for k, v := range outputs {
			known["steps."+s.ID+".outputs."+k] = v
		}
	}
	return known, nil
}

// use runs a composite action.
func (r *runner) use(s step, known map[string]string) (map[string]string, error) {
	dir, ok := r.actions[s.Uses]
	if !ok {
		return nil, fmt.Errorf("the action %s is unknown", s.Uses)
	}
	data, err := os.ReadFile(filepath.Join(dir, "action.yml"))
	if err != nil {
		return nil, err
	}
	var a compositeAction
	if err := strict(data, &a); err != nil {
		return nil, err
	}
	if a.Runs.Using != "composite" || a.Name == "" || a.Description == "" {
		return nil, errors.New("no composite action with a name and a description")
	}
	inside := map[string]string{"github.action_path": dir}
	for name, in := range a.Inputs {
		value, given := s.With[name]
		if in.Required && !given {
			return nil, fmt.Errorf("the input %s is missing", name)
		}
		if !given {
			value = in.Default
		}
		if inside["inputs."+name], err = expand(value, known); err != nil {
			return nil, err
		}
	}
	for name := range s.With {
		if _, ok := a.Inputs[name]; !ok {
			return nil, fmt.Errorf("the input %s is unknown", name)
		}
	}
	after, err := r.steps(a.Runs.Steps, inside)
	if err != nil {
		return nil, err
	}
	outputs := map[string]string{}
	for name, out := range a.Outputs {
		if outputs[name], err = expand(out.Value, after); err != nil {
			return nil, err
		}
	}
	return outputs, nil
}

// bash runs a script as the runner does.
func (r *runner) bash(s step, known map[string]string) (map[string]string, error) {
	action := known["github.action_path"]
	if s.Shell != "bash" && action != "" {
		return nil, errors.New("a step of an action needs shell: bash")
	}
	script, err := expand(s.Run, known)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	env := append(os.Environ(), "CI=true", "GITHUB_ACTIONS=true", "GITHUB_ACTION_PATH="+action, "GITHUB_WORKSPACE="+r.workspace, "RUNNER_TEMP="+r.temp)
	for _, name := range []string{"GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STEP_SUMMARY", "script"} {
		files[name] = filepath.Join(r.t.TempDir(), name)
		if err := os.WriteFile(files[name], nil, 0o600); err != nil {
			return nil, err
		}
		env = append(env, name+"="+files[name])
	}
	for k, v := range r.env {
		env = append(env, k+"="+v)
	}
	for k, v := range s.Env {
		if v, err = expand(v, known); err != nil {
			return nil, err
		}
		env = append(env, k+"="+v)
	}
	if err := os.WriteFile(files["script"], []byte(script), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(r.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", files["script"])
	cmd.Dir, cmd.Env = r.workspace, env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out // The runner reads commands from both.
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.failed = true
		r.log += fmt.Sprintf("exit code %d\n", exit.ExitCode())
		err = nil
	}
	r.log += out.String()
	for line := range strings.Lines(out.String()) {
		r.command(strings.TrimRight(line, "\r\n"))
	}
	summary, readErr := os.ReadFile(files["GITHUB_STEP_SUMMARY"])
	r.summary += string(summary)
	outputs, outErr := values(files["GITHUB_OUTPUT"])
	set, envErr := values(files["GITHUB_ENV"])
	maps.Copy(r.env, set)
	return outputs, errors.Join(err, readErr, outErr, envErr)
}

// command reads a line of output that may be a workflow command.
func (r *runner) command(line string) {
	rest, ok := strings.CutPrefix(line, "::")
	head, text, ok2 := strings.Cut(rest, "::")
	if !ok || !ok2 {
		return
	}
	kind, properties, _ := strings.Cut(head, " ")
	if kind != "error" && kind != "warning" && kind != "notice" {
		return
	}
	a := annotation{kind: kind, text: strings.NewReplacer("%25", "%", "%0D", "\r", "%0A", "\n").Replace(text)}
	for p := range strings.SplitSeq(properties, ",") {
		if k, v, _ := strings.Cut(p, "="); k == "title" {
			a.title = strings.NewReplacer("%25", "%", "%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",").Replace(v)
		}
	}
	r.annotations = append(r.annotations, a)
}

// values reads lines name=value.
func values(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not name=value", filepath.Base(path), line)
		}
		out[k] = v
	}
	return out, nil
}
