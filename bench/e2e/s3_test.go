package main_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
	"watchlab/cmd/watchlab/cli"
)

// startGateway starts an S3-compatible server with one bucket, which stores objects in a
// folder. It returns the server's URL and the bucket's folder.
func startGateway(t *testing.T, id, secret, bucket string) (endpoint, dir string) {
	t.Helper()
	address := programs.Address(t)
	root, side := t.TempDir(), t.TempDir()
	dir = filepath.Join(root, bucket)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Store attributes in a separate folder: some file systems have no extended attributes.
	gateway := programs.Start(t, exec.Command(programs.Pinned(t, "versitygw"), "--port", address, "--access", id, "--secret", secret, "posix", "--sidecar", side, root))
	gateway.Ready(t, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	return "http://" + address, dir
}

// TestCollectFromS3 compares uploads to a real S3-compatible server with uploads to a
// folder. The command collects the former.
func TestCollectFromS3(t *testing.T) {
	const pods = 12
	endpoint, bucket := startGateway(t, "watchlab-id", "watchlab-secret", "results")
	t.Setenv("AWS_ACCESS_KEY_ID", "watchlab-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "watchlab-secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_REGION", "")
	of := playedPods(t, 1)
	url := "s3://results/some/prefix?endpoint=" + endpoint
	sink, err := upload.OpenS3(url)
	if err != nil {
		t.Fatal(err)
	}
	folder := upload.Dir(t.TempDir())
	for _, to := range []upload.Sink{sink, sink, folder} {
		uploadAll(t, to, of, pods, 4)
	}
	// 40 MiB: more than one part of a multipart upload.
	large := nth(of, 0, 1)
	large.Outcome.Env.Args = []string{strings.Repeat("x", 1<<20)}
	p, err := upload.Encode("large", large)
	if err != nil {
		t.Fatal(err)
	}
	p.Data = append(bytes.Clone(p.Data), make([]byte, 40<<20)...)
	if err := sink.Upload(t.Context(), p); err != nil {
		t.Fatal(err)
	}

	want, err := upload.Collect(t.Context(), folder, "scale", pods, t.TempDir(), lab.MergeOptions{Name: "scale"})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	var stdout, stderr bytes.Buffer
	if code := cli.Main([]string{"cluster", "collect", url, "--name", "scale", "--out", out}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	got, err := lab.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Outcome.Comparisons[0].Cells[0].Medians, got.Comparisons[0].Cells[0].Medians); diff != "" || got.Merged.String() != "12 shares" {
		t.Errorf("%s (-folder +S3):\n%s", got.Merged, diff)
	}

	// Read names damaged objects. Below, errors name a missing bucket or server.
	damaged, err := sink.Read(t.Context(), "large", func(upload.Bundle) error { return errors.New("taken") })
	if err != nil || len(damaged) != 1 || !strings.Contains(damaged[0].String(), "s3://results/some/prefix/large/") {
		t.Errorf("damaged: %v, error %v", damaged, err)
	}
	files, err := filepath.Glob(filepath.Join(bucket, "some/prefix/scale/*.wlresult"))
	if err != nil || len(files) != pods {
		t.Errorf("%d files: %v", len(files), err)
	}
	for name, url := range map[string]string{
		"no bucket": "s3://none?endpoint=" + endpoint, "no server": "s3://results?endpoint=http://127.0.0.1:1",
	} {
		store, err := upload.OpenS3(url)
		if err != nil {
			t.Fatal(err)
		}
		p, err := upload.Encode("scale", nth(of, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if err := store.Upload(ctx, p); err == nil {
			t.Errorf("%s: delivered", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		cancel()
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	stderr.Reset()
	if code := cli.Main([]string{"cluster", "collect", url, "--name", "scale", "--out", out + "2"}, &stdout, &stderr); code != 1 || strings.Contains(stderr.String(), "watchlab-secret") {
		t.Errorf("with a wrong key: exit code %d: %s", code, stderr.String())
	}
	t.Log(stderr.String())
}
