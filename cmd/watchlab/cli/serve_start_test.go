package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestServeStarts: the storm begins when all watches are open.
func TestServeStarts(t *testing.T) {
	for name, faults := range map[string][]string{"": nil, "faults": {"--faults", "disconnect:at=1h"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kubeconfig, manifests := filepath.Join(dir, "kc"), filepath.Join(dir, "settings.yaml")
			noError(t, os.WriteFile(manifests, []byte(settings), 0o600))
			out, end := serving(t, slices.Concat([]string{
				"--storm", tiny, "--manifest", manifests, "--kubeconfig-out", kubeconfig, "--speed", "1000", "--start", "2",
			}, faults)...)
			if !strings.Contains(out.String(), "begins 1s after 2 watches are open") {
				t.Errorf("output\n%s", out)
			}
			c := clientOf(t, kubeconfig)
			ctx := t.Context()
			open := func() watch.Interface {
				w := must(c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{}))(t)
				t.Cleanup(w.Stop)
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
			if cm, err := c.CoreV1().ConfigMaps("lab").Get(ctx, "settings", metav1.GetOptions{}); err != nil || cm.Data["a"] != "b" {
				t.Errorf("manifest: %v, %v", cm, err)
			}
			open()
			if strings.Contains(out.String(), "the storm begins\n") {
				t.Error("it began with one watch")
			}
			open()
			out.await(t, "the storm is over")
			if got := names(); maps.Equal(got, initial) {
				t.Errorf("the storm leaves %v", got)
			}
			if code, errs := end(); code != exitOK || errs != "" {
				t.Errorf("exit code %d, stderr %q", code, errs)
			}
		})
	}
}
