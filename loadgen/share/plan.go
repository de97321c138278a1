package share

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Mode is what the shards of a run do with the storm.
type Mode string

// The modes.
const (
	// Self: each shard plays its share of the storm into pipelines of its own.
	Self Mode = "self"
	// SharedServer: one simulated API server plays the whole storm, and each shard
	// watches all of it.
	SharedServer Mode = "shared-server"
	// Cluster: writers make the storm in the real cluster, each its share, and each
	// shard watches all of it.
	Cluster Mode = "cluster"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{Self, SharedServer, Cluster} }

// Where a shard finds what it is told, in its pod.
const (
	// PlanDir is where the run's ConfigMap is mounted: the plan and the files of the
	// storm.
	PlanDir = "/etc/watchlab"
	// PlanFile is the plan.
	PlanFile = PlanDir + "/plan.yaml"
	// TokenFile holds the token of the simulated API server of mode shared-server,
	// from a Secret that its Deployment mounts, too.
	TokenFile = "/etc/watchlab-token/token"
	// ServerPort is the port that the simulated API server's Service has: plain HTTP,
	// with the token.
	ServerPort = 8080
	// MetricsAddr is where a shard serves metrics and its probes, from its start on.
	MetricsAddr = "0.0.0.0:9464"
)

// The environment of a shard.
const (
	// IndexVar is the index of the pod in its Job, which the Job controller sets.
	IndexVar = "JOB_COMPLETION_INDEX"
	// PodVar, NodeVar and NamespaceVar come from the downward API.
	PodVar       = "WATCHLAB_POD"
	NodeVar      = "WATCHLAB_NODE"
	NamespaceVar = "WATCHLAB_NAMESPACE"
)

// Limits of a plan.
const (
	// MaxRun is how long the name of a run may be: names of objects are made of it.
	MaxRun = 20
	// MaxShards is how many shards a run may have.
	MaxShards = 10_000
	// MaxWriters is how many writers: who watches names each of them ([Plan.WrittenBy]).
	MaxWriters = 100
)

// Plan is what the shards of a run are told: the same for all of them. Its YAML form
// is mounted into each pod as [PlanFile].
type Plan struct {
	Run  string `json:"run"`
	Mode Mode   `json:"mode"`

	Shards int `json:"shards"`

	Writers int `json:"writers,omitempty"`

	Args []string `json:"args"`

	Deliver string `json:"deliver"`

	Barrier metav1.Duration `json:"barrier"`

	Server string `json:"server,omitempty"`
}

// ErrPlan is wrapped by the errors for what is no plan.
var ErrPlan = errors.New("invalid plan")

// ReadPlan reads a plan from a file. The error wraps [ErrPlan] and names the file, or is the
// file system's.
func ReadPlan(path string) (Plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Plan{}, err
	}
	p, err := ParsePlan(data)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ParsePlan reads a plan from YAML; fields that there aren't, or that stand there twice,
// are refused. The error wraps [ErrPlan].
func ParsePlan(data []byte) (Plan, error) {
	var p Plan
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		return Plan{}, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return p, p.Validate()
}

// YAML returns the plan as [ParsePlan] reads it.
func (p Plan) YAML() ([]byte, error) { return yaml.Marshal(p) }

// Validate refuses a plan that no shard could follow. It does not look at Args, which
// are run's to judge. The error wraps [ErrPlan].
func (p Plan) Validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrPlan, fmt.Sprintf(format, args...))
	}
	if err := CheckRun(p.Run); err != nil {
		return err
	}
	switch {
	case !slices.Contains(Modes(), p.Mode):
		return invalid("mode %q (have %v)", p.Mode, Modes())
	case p.Shards < 1 || p.Shards > MaxShards:
		return invalid("%d shards (allowed: 1 to %d)", p.Shards, MaxShards)
	case p.Mode == Cluster && (p.Writers < 1 || p.Writers > MaxWriters):
		return invalid("%d writers (mode %s needs 1 to %d)", p.Writers, p.Mode, MaxWriters)
	case p.Mode != Cluster && p.Writers != 0:
		return invalid("%d writers (mode %s has none)", p.Writers, p.Mode)
	case p.Mode == SharedServer && p.Server == "":
		return invalid("no server (mode %s needs one)", p.Mode)
	case p.Mode != SharedServer && p.Server != "":
		return invalid("server %q (mode %s has none)", p.Server, p.Mode)
	case p.Barrier.Duration < 0 || p.Barrier.Duration > maxBarrier:
		return invalid("barrier %v (allowed: 0 to %v)", p.Barrier.Duration, maxBarrier)
	}
	if p.Server != "" {
		if problems := validation.IsDNS1035Label(p.Server); len(problems) > 0 {
			return invalid("server %q: %s", p.Server, problems[0])
		}
	}
	return CheckDeliver(p.Deliver)
}

// maxBarrier is how long a shard may be told to wait: longer means that a run with a
// lost pod seems to hang.
const maxBarrier = time.Hour

// CheckRun refuses what can't be the name of a run. The error wraps [ErrPlan].
func CheckRun(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%w: run %q: %s", ErrPlan, name, problems[0])
	}
	if len(name) > MaxRun {
		return fmt.Errorf("%w: run %q has %d characters (allowed: %d)", ErrPlan, name, len(name), MaxRun)
	}
	return nil
}

// CheckDeliver refuses what is none of the ways to deliver, by its form: configmap, log,
// dir=PATH, s3=URL. The error wraps [ErrPlan].
func CheckDeliver(deliver string) error {
	how, to, has := strings.Cut(deliver, "=")
	switch {
	case !has && (how == "configmap" || how == "log"), has && to != "" && (how == "dir" || how == "s3"):
		return nil
	}
	return fmt.Errorf("%w: deliver %q (allowed: configmap, log, dir=PATH, s3=URL)", ErrPlan, deliver)
}
