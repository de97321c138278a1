// Package telemetry runs the command against an OpenTelemetry collector and Prometheus, and against servers that
// are down, slow or return garbage. Uploads to Pyroscope are tested in bench/telemetry.
package telemetry

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"watchlab/bench/e2e/programs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the command to its end and returns its output.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.Watchlab(t), append([]string{"run", "--ignore-host"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("watchlab run %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), errs.String()
}

// start starts a server and waits until it answers at a URL.
func start(t *testing.T, ready, name string, args ...string) *programs.Process {
	t.Helper()
	p := programs.Start(t, exec.Command(name, args...))
	p.Ready(t, func() error {
		res, err := get(ready)
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	return p
}

// get sends a GET request and closes the connection after the answer.
func get(url string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	return http.DefaultClient.Do(req)
}
