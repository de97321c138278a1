package fleet

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Spec says which run is made.
type Spec struct {
	Plan Plan

	Files map[string][]byte

	Namespace string

	Image string

	Overlay string

	// Dashboards has the kustomization of the dashboards, which the overlay
	// kind-observed refers to; nil for none.
	Dashboards fs.FS

	Serve []string

	Token string

	Resource schema.GroupResource

	PodMonitor bool
}

// Ref names the run.
func (s Spec) Ref() Ref { return Ref{Namespace: s.Namespace, Run: s.Plan.Run} }

// planName is the key of the plan in its ConfigMap.
var planName = path.Base(PlanFile)

// maxFiles is what a ConfigMap holds: the API server takes 1 MiB of data, and etcd
// 1.5 MB a request.
const maxFiles = 1 << 20

// check refuses what can't be made. The error wraps [ErrSpec], or is the plan's.
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
			return invalid("file %q has the name of the plan", name)
		}
		size += len(name) + len(data)
	}
	if size > maxFiles-planRoom {
		return invalid("the files have %d bytes together (allowed: %d, as they travel in a ConfigMap)", size, maxFiles-planRoom)
	}
	switch {
	case s.Plan.Mode == ModeCluster && s.Resource.Resource == "":
		return invalid("mode %s needs a resource", ModeCluster)
	case s.Plan.Mode == ModeSharedServer && s.Plan.Server != s.Ref().object(serverSuffix):
		return invalid("server %q (it is called %s)", s.Plan.Server, s.Ref().object(serverSuffix))
	case s.Plan.Mode == ModeSharedServer && s.Token == "":
		return invalid("mode %s needs a token", ModeSharedServer)
	}
	return nil
}

// planRoom is left for the plan.
const planRoom = 32 << 10

// ServerName is the name of the Service of a run's simulated API server.
func ServerName(run string) string { return Ref{Run: run}.object(serverSuffix) }

// Suffixes of the names of a run's objects.
const (
	serverSuffix = "server"
	tokenSuffix  = "token"
	writerSuffix = "writer"
)
