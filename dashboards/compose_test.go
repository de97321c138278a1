package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type compose struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		DependsOn   []string `yaml:"depends_on"`
		NetworkMode string   `yaml:"network_mode"`
	}
	Volumes map[string]any
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	b := must(os.ReadFile(filepath.Join("compose", name)))(t)
	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestComposeMounts: all services exist, and each path in a command, a configuration or a
// variable is mounted from this folder.
func TestComposeMounts(t *testing.T) {
	var c compose
	readYAML(t, "compose.yaml", &c)
	for _, want := range []string{"prometheus", "grafana", "pyroscope", "tempo", "collector"} {
		if _, ok := c.Services[want]; !ok {
			t.Errorf("no %s", want)
		}
	}
	if text, err := os.ReadFile("compose/compose.yaml"); err != nil || bytes.Contains(text, []byte("0.0.0.0")) || bytes.Contains(text, []byte("localhost")) {
		t.Errorf("a listener is not on 127.0.0.1 (%v)", err)
	}
	pinned := regexp.MustCompile(`^[a-z]+/[a-z-]+:v?\d+\.\d+\.\d+$`)
	for name, s := range c.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q has no release", name, s.Image)
		}
		if s.NetworkMode != "host" {
			t.Errorf("%s isn't on the loopback", name)
		}
		for _, d := range s.DependsOn {
			if _, ok := c.Services[d]; !ok {
				t.Errorf("%s depends on %s", name, d)
			}
		}
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(v, ":")
			_, mode, _ := strings.Cut(to, ":")
			if !strings.HasPrefix(from, ".") {
				if _, ok := c.Volumes[from]; !ok {
					t.Errorf("%s: no volume %s", name, from)
				}
				continue
			}
			if mode != "ro" {
				t.Errorf("%s may write to %s", name, from)
			}
			if _, err := os.Stat(filepath.Join("compose", from)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, "provisioning/dashboards/watchlab.yaml", &providers)
	for _, p := range providers.Providers {
		if !slices.Contains(c.Services["grafana"].Volumes, "../../"+deployed+"json:"+p.Options.Path+":ro") {
			t.Errorf("the dashboard path %s is not mounted", p.Options.Path)
		}
	}
	var prom struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	readYAML(t, "prometheus.yaml", &prom)
	if len(prom.RuleFiles) != 1 || path.Dir(prom.RuleFiles[0]) != "rules" || !slices.Contains(c.Services["prometheus"].Volumes, "../../"+deployed+"rules:/etc/prometheus/rules:ro") {
		t.Errorf("rule files %v", prom.RuleFiles)
	}
	if there, _ := filepath.Glob("../" + deployed + prom.RuleFiles[0]); len(there) == 0 {
		t.Errorf("no rules in %v", prom.RuleFiles)
	}
}

// TestComposeReleases: compose.yaml starts the Prometheus that bench/e2e tests.
func TestComposeReleases(t *testing.T) {
	var c compose
	readYAML(t, "compose.yaml", &c)
	tools := must(os.ReadFile("../scripts/tools/go.mod"))(t)
	m := regexp.MustCompile(`github.com/prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)`).FindSubmatch(tools)
	if m == nil {
		t.Fatal("scripts/tools has no Prometheus")
	}
	if want := fmt.Sprintf("prom/prometheus:v%s.%s.%s", m[1], bytes.TrimLeft(m[2], "0"), m[3]); c.Services["prometheus"].Image != want {
		t.Errorf("compose.yaml starts %s, bench/e2e tests %s", c.Services["prometheus"].Image, want)
	}
}

// TestClusterOverlay: the overlay kind-observed has the releases, dashboards and data
// sources of compose.yaml.
func TestClusterOverlay(t *testing.T) {
	const overlay = "../scripts/deploy/overlays/kind-observed"
	var c compose
	readYAML(t, "compose.yaml", &c)
	image := regexp.MustCompile(`\n +image: (\S+)\n`)
	for name, s := range c.Services {
		b, err := os.ReadFile(filepath.Join(overlay, name+".yaml"))
		if err != nil {
			t.Error(err)
			continue
		}
		if m := image.FindSubmatch(b); m == nil || string(m[1]) != s.Image {
			t.Errorf("%s: the overlay has %s, compose.yaml %s", name, m, s.Image)
		}
	}

	var k struct {
		ConfigMapGenerator []struct{ Files []string } `yaml:"configMapGenerator"`
	}
	readYAML(t, "../../"+deployed+"kustomization.yaml", &k)
	var mapped []string
	for _, g := range k.ConfigMapGenerator {
		mapped = append(mapped, g.Files...)
	}
	pages := must(filepath.Glob("../" + deployed + "json/*.json"))(t)
	want := []string{"rules/watchlab.rules.yaml"}
	for _, p := range pages {
		want = append(want, "json/"+filepath.Base(p))
	}
	slices.Sort(want)
	if slices.Sort(mapped); !slices.Equal(mapped, want) {
		t.Errorf("kustomization.yaml has %q, want %q", mapped, want)
	}
	grafana := must(os.ReadFile(filepath.Join(overlay, "grafana.yaml")))(t)
	for _, name := range pages {
		uid := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".json"), "watchlab-")
		if !strings.Contains(string(grafana), "name: watchlab-dashboard-"+uid+"\n") {
			t.Errorf("Grafana does not mount %s", name)
		}
	}

	type source struct {
		Name, UID, Type, URL string
		JSONData             map[string]any `yaml:"jsonData"`
	}
	var here, there struct{ Datasources []source }
	readYAML(t, "provisioning/datasources/watchlab.yaml", &here)
	readYAML(t, filepath.Join("..", overlay, "config/datasources.yaml"), &there)
	for _, list := range [][]source{here.Datasources, there.Datasources} {
		for i := range list {
			list[i].URL = list[i].URL[strings.LastIndex(list[i].URL, ":"):]
			delete(list[i].JSONData, "timeInterval")
		}
	}
	if !reflect.DeepEqual(here, there) {
		t.Errorf("data sources of the overlay:\n%+v\nof compose.yaml:\n%+v", there, here)
	}
}
