package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestServeRepeats: the storm begins when all watches are open. It begins again when all
// have ended. Faults may end watches in between.
func TestServeRepeats(t *testing.T) {
	for name, faults := range map[string][]string{"": nil, "faults": {"--faults", "disconnect:at=1h"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kubeconfig, manifests := filepath.Join(dir, "kc"), filepath.Join(dir, "settings.yaml")
			noError(t, os.WriteFile(manifests, []byte(settings), 0o600))
			out, end := serving(t, slices.Concat([]string{
				"--storm", tiny, "--manifest", manifests, "--kubeconfig-out", kubeconfig, "--speed", "1000", "--start", "2", "--repeat", "2",
			}, faults)...)
			if !strings.Contains(out.String(), "begins 1s after 2 watches are open") {
				t.Errorf("output\n%s", out)
			}
			c := clientOf(t, kubeconfig)
			ctx := t.Context()
			open := func() watch.Interface {
				w := must(c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{}))(t)
				return w
			}
			// names returns the current pods by version.
			names := func() map[string]string {
				list := must(c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}))(t)
				all := map[string]string{}
				for _, p := range list.Items {
					all[p.Namespace+"/"+p.Name] = p.ResourceVersion
				}
				return all
			}
			initial := names()
			var final map[string]string
			for round := range 2 {
				if got := names(); !maps.Equal(got, initial) {
					t.Errorf("round %d begins with %v, not with %v", round, got, initial)
				}
				if cm, err := c.CoreV1().ConfigMaps("lab").Get(ctx, "settings", metav1.GetOptions{}); err != nil || cm.Data["a"] != "b" {
					t.Errorf("manifest: %v, %v", cm, err)
				}
				first := open()
				if n := strings.Count(out.String(), "the storm begins\n"); n != round {
					t.Errorf("it began %d times, with one watch in round %d", n, round)
				}
				second := open()
				awaitCount(t, out, "the storm is over", round+1)
				got := names()
				if maps.Equal(got, initial) || round > 0 && !maps.Equal(got, final) {
					t.Errorf("round %d leaves %v, the one before %v", round, got, final)
				}
				final = got
				if _, err := c.CoreV1().Pods("lab").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				first.Stop()
				second.Stop()
				if round == 0 {
					out.await(t, "as it was at first")
				}
			}
			if code, errs := end(); code != exitOK || errs != "" {
				t.Errorf("exit code %d, stderr %q", code, errs)
			}
			if !strings.Contains(out.String(), "4 watches") {
				t.Errorf("the end is not reported:\n%s", out)
			}
		})
	}
}

// TestServeRepeatsWhereNobodyWatches: a turn ends early when all watches have ended.
func TestServeRepeatsWhereNobodyWatches(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kc")
	out, end := serving(t, "--storm", tiny, "--kubeconfig-out", kubeconfig, "--speed", "0.001", "--repeat", "0")
	c := clientOf(t, kubeconfig)
	for n := range 3 {
		w := must(c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}))(t)
		w.Stop()
		awaitCount(t, out, "the storm ends before its time", n+1)
		awaitCount(t, out, "as it was at first", n+1)
	}
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// awaitCount waits until the output has a text n times.
func awaitCount(t *testing.T, out *output, text string, n int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for strings.Count(out.String(), text) < n {
		select {
		case <-out.changed:
		case <-timeout:
			t.Fatalf("%q was not written %d times, but\n%s", text, n, out)
		}
	}
}
