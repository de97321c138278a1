package fleet

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

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
		return badField("namespace", "%q: %s", s.Namespace, problems[0])
	}
	if strings.ContainsAny(s.Image, " \t\r\n") {
		return badField("image", "%q", s.Image)
	}
	size := 0
	for name, data := range s.Files {
		switch problems := validation.IsConfigMapKey(name); {
		case len(problems) > 0:
			return badField("storm.name", "%s: %s", name, problems[0])
		case name == planName:
			return badField("storm.name", "%s: the name is reserved for the plan", name)
		}
		if size += len(name) + len(data); size > maxFiles-planRoom {
			return badField("storm.name", "%s: it has %d bytes (allowed: %d, the limit of a ConfigMap)", name, len(data), maxFiles-planRoom)
		}
	}
	return nil
}

const planRoom = 32 << 10 // number of bytes reserved for the plan
