package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/pipeline"
)

// unasked returns the kubeconfig of a server that answers 503 and fails the test on any
// request but GET. Bad input is found before anything is written.
func unasked(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return kubeconfigOf(t, s.URL)
}

func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}]
current-context: one
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClusterBadInput(t *testing.T) {
	kubeconfig := unasked(t)
	place := []string{"--kubeconfig", kubeconfig, "--context", "one"}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, append([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n#"), bytes.Repeat([]byte("x"), 2<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	type bad struct {
		args []string
		says []string
	}
	cases := []bad{
		{[]string{"run", "--kubeconfig", kubeconfig, "--", "--storm", "gang"}, []string{"--context", "writes to the cluster"}},
		{[]string{"clean", "--kubeconfig", kubeconfig, "--all"}, []string{"--context"}},
		{[]string{"status", "--kubeconfig", kubeconfig, "--context", "two"}, []string{"--context", `"two"`, "one"}},
		{with(with([]string{"run"}, place...), "gang"), []string{`"gang"`, "after --"}},
		{with(with([]string{"run"}, place...), "--name", "Mine", "--"), []string{"--name", "Mine"}},
		{with(with([]string{"run"}, place...), "--name", "a-name-that-is-too-long", "--"), []string{"--name", "20"}},
		{with(with([]string{"run"}, place...), "--mode", "x", "--"), []string{"--mode", "self, cluster"}},
		{with(with([]string{"run"}, place...), "--pods", "0", "--"), []string{"--pods", "1 to 10000"}},
		{with(with([]string{"run"}, place...), "--writers", "2", "--", "--storm", "recorded-gang"), []string{"--writers", "cluster"}},
		{with(with([]string{"run"}, place...), "--upload", "log", "--"), []string{"unknown flag: --upload"}},
		{with(with([]string{"run"}, place...), "--overlay", "none", "--", "--storm", tiny), []string{"--overlay", "kind"}},
		{with(with([]string{"run"}, place...), "--", "--rounds", "x"), []string{"--rounds"}},
		{with(with([]string{"run"}, place...), "--", "gang"), []string{`"gang"`}},
		{with(with([]string{"run"}, place...), "--", "--storm", "nowhere"), []string{"--storm", "nowhere"}},
		{with(with([]string{"run"}, place...), "--"), []string{"--family", "several storms"}},
		{with(with([]string{"run"}, place...), "--", "--storm", "recorded-gang", "--out", "x"), []string{"unknown flag: --out"}},
		{with(with([]string{"run"}, place...), "--", "--storm", "recorded-gang", "--share", "0/2"), []string{"--share"}},
		{with(with([]string{"run"}, place...), "--", "--family", "deltafifo", "--source", "cluster"), []string{"--source", "--mode cluster"}},
		{with(with([]string{"run"}, place...), "--", "--storm", "gang", "--scale", "0.01", "--manifest", "-"), []string{"--manifest"}},
		{with(with([]string{"run"}, place...), "--", "--storm", "gang", "--scale", "0.01", "--manifest", large), []string{"--manifest: " + large + ": it has 2097240 bytes; all files have "}},
		{with(with([]string{"run"}, place...), "--mode", "cluster", "--", "--storm", "recorded-gang", "--source", "apply"), []string{"--source"}},
		{with(with([]string{"clean"}, place...), "--name", "a", "--all"), []string{"--all"}},
		{with([]string{"clean"}, place...), []string{"--name"}},
		{with(with([]string{"status"}, place...), "-o", "yaml"), []string{"--output"}},
		{with(with([]string{"collect"}, place...), "-o", "yaml"), []string{"--output"}},
		{with(with([]string{"collect"}, place...), "--out", t.TempDir()), []string{"--out: ", "exists"}},
		{with(with([]string{"collect"}, place...), "logs.txt"), []string{`"logs.txt"`}},
		{[]string{"collect", "--kubeconfig", kubeconfig + "-none"}, []string{"--kubeconfig: "}},
	}
	for _, m := range badExperiments(t) {
		cases = append(cases, bad{with(with([]string{"run"}, place...), "-f", m.file, "--"), []string{"watchlab: --experiment: " + m.says}})
	}
	for _, c := range cases {
		code, out, errs := call(t, append([]string{"cluster"}, c.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
		for _, want := range c.says {
			if !strings.Contains(errs, want) {
				t.Errorf("%q: %q does not say %q", c.args, errs, want)
			}
		}
	}
}

// TestPack: the pods' Spec is the user's, with the paths of files in a pod.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	file := func(dir, name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mine, pod := file(dir, "mine.yaml", "profiles: []\n"), file(dir, "pod.yaml", "kind: Pod\n")
	cmd := newClusterRun()
	cmd.SetContext(t.Context())
	f := clusterRunFlags{}
	if err := f.parse(cmd, []string{"--pace", "max,2000", "--storm", mine, "--manifest", pod, "--manifest", "https://example.org/pod.yaml", "--stalled", "--faults", "gone:at=1s,count=2"}); err != nil {
		t.Fatal(err)
	}
	got, err := f.playing.spec(f.given)
	if err != nil {
		t.Fatal(err)
	}
	p := packer{files: map[string][]byte{}, from: map[string]packedFile{}}
	if err := p.spec(&got); err != nil {
		t.Fatal(err)
	}
	want := experiment.Spec{
		Paces: []string{"max", "2000"}, Storm: experiment.Storm{Name: "/etc/watchlab/mine.yaml"}, Config: pipeline.Config{Stalled: true},
		Manifests: []string{"/etc/watchlab/pod.yaml", "https://example.org/pod.yaml"}, Faults: []string{"gone:at=1s,count=2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packed (-want +got):\n%s", diff)
	}
	if len(p.files) != 2 || string(p.files["mine.yaml"]) != "profiles: []\n" || string(p.files["pod.yaml"]) != "kind: Pod\n" {
		t.Errorf("files %q", p.files)
	}
	two := experiment.Spec{Storm: experiment.Storm{Name: mine}, Manifests: []string{file(t.TempDir(), "mine.yaml", "")}}
	if err := p.spec(&two); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Errorf("two files of one name: %v", err)
	}
}

// TestFollower: each change is printed once.
func TestFollower(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	flags := clusterRunFlags{overlay: "kind"}
	flags.place.context = "kind-lab"
	f := follower{w: &out, now: func() time.Time { return now }, remedy: flags.remedy}
	state := func(pods ...fleet.Pod) fleet.State {
		return fleet.State{Plan: fleet.Plan{Pods: len(pods)}, Pods: pods}
	}
	waiting := fleet.Pod{Index: 1, Phase: fleet.Waiting, Reason: "Unschedulable", Message: "Insufficient cpu"}
	f.show(state(fleet.Pod{Phase: fleet.Running}, waiting))
	f.show(state(fleet.Pod{Phase: fleet.Running, Progress: "play 1"}, waiting))
	now = now.Add(quietTime)
	for _, play := range []string{"play 2", "play 3"} {
		f.show(state(fleet.Pod{Phase: fleet.Running, Progress: play}, waiting))
	}
	f.show(state(fleet.Pod{Phase: fleet.Failed, Reason: "exit code 1", Name: "a", Failures: 1}, waiting))
	f.show(state(fleet.Pod{Phase: fleet.Running, Name: "b", Failures: 1}, waiting))
	f.show(state(fleet.Pod{Phase: fleet.Succeeded, Name: "b", Failures: 1, Uploaded: true}, fleet.Pod{Index: 1, Phase: fleet.GivenUp, Name: "c", Failures: 1, Reason: "exit code 2"}))
	pulling := fleet.Pod{Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "watchlab:dev"}
	grafana := fleet.Pod{Deployment: "grafana", Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "grafana:1"}
	for range 2 {
		f.show(state(pulling, pulling, grafana))
		pulling.Reason, grafana.Reason = "ImagePullBackOff", "ImagePullBackOff"
	}
	want := `watchlab: pod 1 waits: Unschedulable: Insufficient cpu; overlay kind asks for more than the nodes have
watchlab: 2 pods: 1 waiting, 1 running; 0 results uploaded
watchlab: pod 0: play 2
watchlab: pod 0: a failed: exit code 1
watchlab: 2 pods: 1 waiting, 1 failed; 0 results uploaded
watchlab: 2 pods: 1 waiting, 1 running; 0 results uploaded
watchlab: pod 1: c failed, no retry left: exit code 2
watchlab: 2 pods: 1 given up, 1 succeeded; 1 result uploaded
watchlab: pod 0 waits: ErrImagePull: watchlab:dev; make image-load IMAGE=watchlab:dev CLUSTER=lab loads it, --image names another
watchlab: grafana waits: ErrImagePull: grafana:1; docker pull grafana:1 && kind load docker-image grafana:1 --name lab loads it
watchlab: 3 pods: 2 waiting; 0 results uploaded
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
