package main_test

import (
	"bytes"
	"fmt"
	"io/fs"
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
	b, err := os.ReadFile(filepath.Join("compose", name))
	if err != nil {
		t.Fatal(err)
	}
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
		mounts := map[string]string{} // from inside to here
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(v, ":")
			to, mode, _ := strings.Cut(to, ":")
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
			mounts[to] = from
		}
		here := func(inside string) (string, bool) {
			for to, from := range mounts {
				if inside == to || strings.HasPrefix(inside, to+"/") {
					return filepath.Join("compose", from, strings.TrimPrefix(inside, to)), true
				}
			}
			return "", false
		}
		named := regexp.MustCompile(`^(?:--?[a-z.]+=)?(/(?:etc|var/lib/grafana/dashboards)/\S+\.\w+)$`)
		texts := slices.Clone(s.Command)
		for _, v := range s.Environment {
			texts = append(texts, v)
		}
		for _, text := range texts {
			m := named.FindStringSubmatch(text)
			if m == nil {
				continue
			}
			local, ok := here(m[1])
			if !ok {
				t.Errorf("%s: %s is not mounted", name, m[1])
				continue
			}
			if _, err := os.Stat(local); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, "provisioning/dashboards/watchlab.yaml", &providers)
	for _, p := range providers.Providers {
		if !slices.Contains(c.Services["grafana"].Volumes, "../"+deployed+"json:"+p.Options.Path+":ro") {
			t.Errorf("the dashboard path %s is not mounted", p.Options.Path)
		}
	}
	var prom struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	readYAML(t, "prometheus.yaml", &prom)
	if len(prom.RuleFiles) != 1 || path.Dir(prom.RuleFiles[0]) != "rules" || !slices.Contains(c.Services["prometheus"].Volumes, "../"+deployed+"rules:/etc/prometheus/rules:ro") {
		t.Errorf("rule files %v", prom.RuleFiles)
	}
	if there, _ := filepath.Glob(deployed + prom.RuleFiles[0]); len(there) == 0 {
		t.Errorf("no rules in %v", prom.RuleFiles)
	}
}

// TestComposeReleases: compose.yaml starts the Prometheus that bench/e2e tests.
func TestComposeReleases(t *testing.T) {
	var c compose
	readYAML(t, "compose.yaml", &c)
	tools, err := os.ReadFile("../scripts/tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
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
	readYAML(t, "../"+deployed+"kustomization.yaml", &k)
	var mapped []string
	for _, g := range k.ConfigMapGenerator {
		mapped = append(mapped, g.Files...)
	}
	pages, err := filepath.Glob(deployed + "json/*.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"rules/watchlab.rules.yaml"}
	for _, p := range pages {
		want = append(want, "json/"+filepath.Base(p))
	}
	slices.Sort(want)
	if slices.Sort(mapped); !slices.Equal(mapped, want) {
		t.Errorf("kustomization.yaml has %q, want %q", mapped, want)
	}
	grafana, err := os.ReadFile(filepath.Join(overlay, "grafana.yaml"))
	if err != nil {
		t.Fatal(err)
	}
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

// TestComposePorts: each address in the configuration has a listener, all listeners are on
// the loopback, and no two share a port.
func TestComposePorts(t *testing.T) {
	var text strings.Builder
	err := filepath.WalkDir("compose", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		text.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "0.0.0.0") || strings.Contains(text.String(), "localhost") {
		t.Error("a listener is not on 127.0.0.1")
	}

	var c compose
	readYAML(t, "compose.yaml", &c)
	var tempo struct {
		Server struct {
			Port int `yaml:"http_listen_port"`
		}
		Distributor struct {
			Receivers struct {
				OTLP struct {
					Protocols struct{ GRPC struct{ Endpoint string } }
				}
			}
		}
	}
	readYAML(t, "tempo.yaml", &tempo)
	var collector struct {
		Receivers struct {
			OTLP struct {
				Protocols struct{ HTTP struct{ Endpoint string } }
			}
		}
		Exporters map[string]struct{ Endpoint string }
		Service   struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	readYAML(t, "collector.yaml", &collector)
	var sources struct {
		Datasources []struct {
			UID, URL string
			JSONData struct {
				Exemplars []struct {
					Name          string
					DatasourceUID string `yaml:"datasourceUid"`
				} `yaml:"exemplarTraceIdDestinations"`
				Profiles struct {
					DatasourceUID string `yaml:"datasourceUid"`
				} `yaml:"tracesToProfiles"`
			} `yaml:"jsonData"`
		}
	}
	readYAML(t, "provisioning/datasources/watchlab.yaml", &sources)

	listens := []string{ // as the services are started
		after(t, c.Services["prometheus"].Command, "--web.listen-address="),
		"127.0.0.1:" + c.Services["grafana"].Environment["GF_SERVER_HTTP_PORT"],
		after(t, c.Services["pyroscope"].Command, "-server.http-listen-address=") + ":" + after(t, c.Services["pyroscope"].Command, "-server.http-listen-port="),
		fmt.Sprintf("127.0.0.1:%d", tempo.Server.Port),
		tempo.Distributor.Receivers.OTLP.Protocols.GRPC.Endpoint,
		collector.Receivers.OTLP.Protocols.HTTP.Endpoint,
	}
	if sorted := slices.Sorted(slices.Values(listens)); len(slices.Compact(sorted)) != len(listens) {
		t.Errorf("two listeners share an address: %v", listens)
	}
	listened := func(who, address string) {
		address = strings.TrimPrefix(address, "http://")
		address, _, _ = strings.Cut(address, "/")
		if !slices.Contains(listens, address) {
			t.Errorf("%s refers to %s, which has no listener", who, address)
		}
	}
	uids := map[string]bool{}
	for _, d := range sources.Datasources {
		listened("Grafana's "+d.UID, d.URL)
		uids[d.UID] = true
	}
	for _, d := range sources.Datasources {
		for _, e := range d.JSONData.Exemplars {
			if e.Name != "trace_id" || !uids[e.DatasourceUID] {
				t.Errorf("%s: exemplars link to %+v", d.UID, e)
			}
		}
		if p := d.JSONData.Profiles.DatasourceUID; p != "" && !uids[p] {
			t.Errorf("%s: traces link to %s", d.UID, p)
		}
	}
	for name, e := range collector.Exporters {
		listened(name, e.Endpoint)
	}
	for name, p := range collector.Service.Pipelines {
		for _, e := range p.Exporters {
			if _, ok := collector.Exporters[e]; !ok {
				t.Errorf("pipeline %s: no exporter %s", name, e)
			}
		}
	}
}

// after returns the rest of the argument with a prefix.
func after(t *testing.T, args []string, prefix string) string {
	t.Helper()
	for _, a := range args {
		if rest, ok := strings.CutPrefix(a, prefix); ok {
			return rest
		}
	}
	t.Errorf("no %s in %v", prefix, args)
	return ""
}
