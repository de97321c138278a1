// Package fleet takes a run to a cluster: its shards are the pods of an Indexed Job
// there.
//
//		f, err := fleet.New(config)
//		err = f.Start(ctx, fleet.Spec{Plan: plan, Namespace: "watchlab", Image: "watchlab:dev", Overlay: "kind"})
//		state, err := f.Follow(ctx, ref, show)   // until its Job has ended
//		err = f.Clean(ctx, ref)
//
//	 1. [Build] makes the objects from the manifests of scripts/deploy, which it has
//	    with it: the base, the components that the mode and the delivery need, the
//	    overlay.
//	 2. [Fleet.Start] claims the run's name by creating its ConfigMap, which nobody else
//	    can create then, and applies the rest by server-side apply, the Jobs last.
//	 3. [Fleet.Follow] watches Jobs, pods, Leases and the metadata of ConfigMaps, one
//	    watch each, and shows each [State] that differs from the last.
//
// Everything of a run carries its name as the label watchlab.dev/run; that is how it
// is found again, and cleaned up. Nothing is kept on the side where it is started
// from: whoever reaches the cluster can ask for its state, collect and clean.
package fleet

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"watchlab/loadgen/source/cluster"
)

const (
	// RunLabel is on every object of a run.
	RunLabel = cluster.RunLabel
	// NamespaceLabel is on those objects that are in no namespace: it says in which the
	// run is that they are for.
	NamespaceLabel = "watchlab.dev/namespace"
	// nameLabel and appName are on everything that is applied.
	nameLabel = "app.kubernetes.io/name"
	appName   = "watchlab"
	// Manager is the field manager of what is applied.
	Manager = cluster.Manager
)

var (
	// ErrSpec is wrapped by the error for a run that can't be made of what was asked.
	ErrSpec = errors.New("invalid run")
	// ErrOverlay is wrapped by the error for an overlay that there isn't, or that
	// doesn't build.
	ErrOverlay = errors.New("invalid overlay")
	// ErrExists is wrapped by the error for a run whose name is taken.
	ErrExists = errors.New("run exists")
	// ErrNoRun is wrapped by the error for a run that there isn't.
	ErrNoRun = errors.New("no such run")
)

// Ref names a run in a cluster.
type Ref struct {
	Namespace, Run string
}

func (r Ref) String() string { return r.Run + " in namespace " + r.Namespace }

// object is the name of an object of the run: of its Job and its ConfigMap where
// suffix is empty.
func (r Ref) object(suffix string) string {
	name := objectPrefix + r.Run
	if suffix != "" {
		name += "-" + suffix
	}
	return name
}

const objectPrefix = "watchlab-"

func (r Ref) selector() string { return RunLabel + "=" + r.Run }

// Fleet talks to one cluster. Its methods may be called at the same time.
type Fleet struct {
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	mapper   meta.RESTMapper
}

// New returns the fleet of a cluster. Nothing is sent to it yet.
func New(config *rest.Config) (*Fleet, error) {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = appName
	}
	// The API server says itself when it has too much to do.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	md, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return &Fleet{
		client: client, dynamic: dyn, metadata: md,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}, nil
}
