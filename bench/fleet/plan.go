package fleet

import (
	"encoding/json"
	"os"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/manifest"
)

// Paths and addresses in a pod.
const (
	PlanDir     = "/etc/watchlab"        // mount of the run's ConfigMap: the plan and its files
	PlanFile    = PlanDir + "/plan.yaml" // path of the plan
	MetricsAddr = "0.0.0.0:9464"         // of metrics and probes, from the start of the pod
)

// The environment variables of a pod.
const (
	IndexVar = "JOB_COMPLETION_INDEX" // completion index; the Job controller sets it
	// PodVar, NodeVar and NamespaceVar come from the downward API.
	PodVar       = "WATCHLAB_POD"
	NodeVar      = "WATCHLAB_NODE"
	NamespaceVar = "WATCHLAB_NAMESPACE"
	// FailuresVar and IgnoredVar count the earlier pods of the index, by the Job controller.
	FailuresVar = "WATCHLAB_FAILURES"
	IgnoredVar  = "WATCHLAB_IGNORED"
)

// Limits of a plan.
const (
	MaxRun  = 20     // characters of a run's name, which object names contain
	MaxPods = 10_000 // largest number of pods
)

// Plan configures the pods of a run. All pods mount its YAML form as [PlanFile].
type Plan struct {
	Run        string          `json:"run"`                 // name of the run
	Pods       int             `json:"pods"`                // number of pods: the completions of their Job
	Experiment json.RawMessage `json:"experiment"`          // Spec of package experiment that each pod plays, as JSON
	Pyroscope  string          `json:"pyroscope,omitempty"` // URL for pprof profiles of each pod; empty for none
	// Barrier is the timeout of a pod for the others before each cell; 0 for no barrier.
	Barrier metav1.Duration `json:"barrier"`
}

// ReadPlan reads a plan from a file; see [ParsePlan].
func ReadPlan(path string) (Plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Plan{}, err
	}
	return ParsePlan(path, data)
}

// ParsePlan reads a valid plan. The error is a [*manifest.Error].
func ParsePlan(file string, data []byte) (Plan, error) {
	var p Plan
	if err := manifest.Strict(file, data, &p); err != nil {
		return Plan{}, err
	}
	return p, manifest.Locate(file, data, p.Validate())
}

// YAML returns the plan in the format of [ParsePlan].
func (p Plan) YAML() ([]byte, error) { return yaml.Marshal(p) }

// Validate checks all fields but Experiment. The error is a [*manifest.Error].
func (p Plan) Validate() error {
	problems := validation.IsDNS1123Label(p.Run)
	switch {
	case len(problems) > 0:
		return manifest.Bad("run", "%q: %s", p.Run, problems[0])
	case len(p.Run) > MaxRun:
		return manifest.Bad("run", "%q has %d characters (allowed: %d)", p.Run, len(p.Run), MaxRun)
	case p.Pods < 1 || p.Pods > MaxPods:
		return manifest.Bad("pods", "%d (allowed: 1 to %d)", p.Pods, MaxPods)
	case p.Barrier.Duration < 0 || p.Barrier.Duration > maxBarrier:
		return manifest.Bad("barrier", "%v (allowed: 0 to %v)", p.Barrier.Duration, maxBarrier)
	}
	return nil
}

// maxBarrier: with a longer timeout, a run with a lost pod would seem to hang.
const maxBarrier = time.Hour

// Spec describes a run in a cluster.
type Spec struct {
	Plan  Plan              // mounted into each pod, as [PlanFile]
	Files map[string][]byte // mounted beside the plan, in [PlanDir]; the keys are file names
	// Namespace of the run. A missing one is created with the restricted Pod Security level;
	// another owner's is not modified.
	Namespace string
	Image     string // image of watchlab; empty for that of the manifests
	// Overlay is one of [Overlays], or a file of manifests that kubectl kustomize has built on the same base; empty
	// for the plain base.
	Overlay string
}

// Ref names the run.
func (s Spec) Ref() Ref { return Ref{Namespace: s.Namespace, Run: s.Plan.Run} }

var planName = path.Base(PlanFile) // key of the plan in its ConfigMap

// maxFiles limits a ConfigMap's data. The API server accepts 1 MiB, etcd 1.5 MB per request.
const maxFiles = 1 << 20

// check validates the Spec. The error is a [*manifest.Error].
func (s Spec) check() error {
	if err := s.Plan.Validate(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Label(s.Namespace); len(problems) > 0 {
		return manifest.Bad("namespace", "%q: %s", s.Namespace, problems[0])
	}
	if strings.ContainsAny(s.Image, " \t\r\n") {
		return manifest.Bad("image", "%q", s.Image)
	}
	size := 0
	for name, data := range s.Files {
		switch problems := validation.IsConfigMapKey(name); {
		case len(problems) > 0:
			return manifest.Bad("storm.name", "%s: %s", name, problems[0])
		case name == planName:
			return manifest.Bad("storm.name", "%s: the name is reserved for the plan", name)
		}
		if size += len(name) + len(data); size > maxFiles-planRoom {
			return manifest.Bad("storm.name", "%s: it has %d bytes (allowed: %d, the limit of a ConfigMap)", name, len(data), maxFiles-planRoom)
		}
	}
	return nil
}

const planRoom = 32 << 10 // number of bytes reserved for the plan
