package resources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// notShown are subresources that are not simulated.
var notShown = map[string]bool{
	"pods attach": true, "pods exec": true, "pods log": true, "pods portforward": true, "pods proxy": true,
	"nodes proxy": true, "services proxy": true,
}

// TestAgainstKubeAPIServer compares the registry with the discovery of a real
// kube-apiserver, line by line.
func TestAgainstKubeAPIServer(t *testing.T) {
	var want []string
	for line := range strings.Lines(discoveryText) {
		if strings.HasPrefix(line, "# Resources of client-go v0.37 without a stable version") {
			break
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		kept := fields[:9:9]
		for _, sub := range fields[9:] {
			name, _, _ := strings.Cut(sub, ":")
			if !notShown[fields[2]+" "+name] {
				kept = append(kept, sub)
			}
		}
		want = append(want, strings.Join(kept, " "))
	}
	var got []string
	for _, res := range New().All() {
		got = append(got, describeLine(res))
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing  %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("too many %s", line)
		}
	}
}

func describeLine(res *Resource) string {
	group := res.GVR.Group
	if group == "" {
		group = "core"
	}
	scope := "Cluster"
	if res.Namespaced {
		scope = "Namespaced"
	}
	list := func(s []string) string {
		if len(s) == 0 {
			return "-"
		}
		return strings.Join(s, ",")
	}
	line := fmt.Sprintf("%s %s %s %s %s %s %s %s %s", group, res.GVR.Version, res.GVR.Resource, res.GVK.Kind, res.Singular, scope,
		list(res.Verbs), list(res.ShortNames), list(res.Categories))
	for _, sub := range res.Subresources {
		line += " " + sub.Name + ":" + sub.Kind.Kind + ":" + list(sub.Verbs)
	}
	return line
}
