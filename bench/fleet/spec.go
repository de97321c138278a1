package fleet

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Spec describes a run in a cluster.
type Spec struct {
	Plan Plan

	Files map[string][]byte
	// Namespace is where the run is. Where there is none of that name, it is made,
	// with the restricted Pod Security level; one that somebody else made is left as
	// it is.
	Namespace string
	// Image is that of all containers; empty for the manifests'.
	Image string
	// Overlay is the name of one of [Overlays], or a folder with a kustomization that
	// stands on ../../base as they do; empty for the base as it is.
	Overlay string

	// Dashboards has the kustomization of the dashboards, which the overlay
	// kind-observed refers to; nil for none.
	Dashboards fs.FS

	Serve []string
	// Token is what the simulated API server asks for, in mode shared-server.
	Token string
	// Resource is what the writers make and the shards hear, in mode cluster.
	Resource schema.GroupResource
	// PodMonitor adds one, for clusters that have the kind.
	PodMonitor bool
}

// Ref names the run.
func (s Spec) Ref() Ref { return Ref{Namespace: s.Namespace, Run: s.Plan.Run} }

// planName is the key of the plan in its ConfigMap.
var planName = path.Base(PlanFile)

// maxFiles is the limit of a ConfigMap: the API server accepts 1 MiB, etcd 1.5 MB a request.
const maxFiles = 1 << 20

// check validates the Spec. The error wraps [ErrSpec] or [ErrPlan].
func (s Spec) check() error {
	if err := s.Plan.Validate(); err != nil {
		return err
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrSpec, fmt.Sprintf(format, args...))
	}
	if problems := validation.IsDNS1123Label(s.Namespace); len(problems) > 0 {
		return invalid("namespace %q: %s", s.Namespace, problems[0])
	}
	if strings.ContainsAny(s.Image, " \t\r\n") {
		return invalid("image %q", s.Image)
	}
	size := 0
	for name, data := range s.Files {
		if problems := validation.IsConfigMapKey(name); len(problems) > 0 {
			return invalid("file %q: %s", name, problems[0])
		}
		if name == planName {
			return invalid("file %q: the name is reserved for the plan", name)
		}
		size += len(name) + len(data)
	}
	if size > maxFiles-planRoom {
		return invalid("the files have %d bytes (allowed: %d, the limit of a ConfigMap)", size, maxFiles-planRoom)
	}
	switch {
	case s.Plan.Mode == ModeCluster && s.Resource.Resource == "":
		return invalid("mode %s needs a resource", ModeCluster)
	case s.Plan.Mode == ModeSharedServer && s.Plan.Server != s.Ref().object(serverSuffix):
		return invalid("server %q (want %s)", s.Plan.Server, s.Ref().object(serverSuffix))
	case s.Plan.Mode == ModeSharedServer && s.Token == "":
		return invalid("mode %s needs a token", ModeSharedServer)
	}
	return nil
}

// planRoom is reserved for the plan.
const planRoom = 32 << 10

// ServerName returns the name of the Service of the simulated API server.
func ServerName(run string) string { return Ref{Run: run}.object(serverSuffix) }

// Suffixes of object names.
const (
	serverSuffix = "server"
	tokenSuffix  = "token"
	writerSuffix = "writer"
)
