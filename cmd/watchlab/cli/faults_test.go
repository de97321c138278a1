package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const webPod = `# Mine.
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "web:1"}
  - {name: b, image: "side:1"}
`

// command runs a command line and returns its exit code and output.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestRunWithFaults(t *testing.T) {
	code, out, errs := command("run", "--ignore-host", "--storm", "nodeloss", "--nodes", "1", "--pipeline", "informer", "--source", "apiserver",
		"--impl", "cond", "--delivery", "in-order", "--rounds", "1", "--faults", "disconnect:frames=50,count=1")
	if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "fault disconnect:frames=50,count=1") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestRunWithStaticPodsAndManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(webPod), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command("run", "--ignore-host", "--storm", tiny, "--pipeline", "kubelet", "--impl", "cond",
		"--rounds", "1", "--events", "200", "--static", "3", "--manifest", file)
	if code != exitOK || !strings.Contains(out, "file and http with 3 pods each") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestRunRefusesFaultsAndManifests(t *testing.T) {
	dir := t.TempDir()
	broken, config := filepath.Join(dir, "broken.yaml"), filepath.Join(dir, "config.yaml")
	for path, text := range map[string]string{
		broken: strings.Replace(webPod, "containers", "contaners", 1),
		config: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"--faults: needs --source apiserver":                              {"--faults", "gone"},
		`--faults: fault 1 (gnoe): invalid fault: unknown fault "gnoe"`:   {"--faults", "gnoe", "--source", "apiserver"},
		"--static: needs --pipeline kubelet":                              {"--static", "3"},
		"--static: -1 is negative":                                        {"--static", "-1", "--pipeline", "kubelet"},
		"--recursive: needs --manifest":                                   {"-R"},
		"broken.yaml:2: invalid manifest: Pod web: strict decoding error": {"--manifest", broken},
		"config.yaml:1: invalid manifest: ConfigMap has no pod template":  {"--manifest", config},
		"none.yaml: no such file or directory":                            {"--manifest", filepath.Join(dir, "none.yaml")},
	} {
		code, out, errs := command(append([]string{"run", "--storm", "steady", "--pods", "20"}, args...)...)
		if code != exitUsage || !strings.Contains(errs, want) || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %s%s, want %s", args, code, out, errs, want)
		}
	}
}
