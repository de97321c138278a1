// Package cluster reads a real cluster. [Connect] reads a kubeconfig, [Cluster.Resource] finds a
// resource, and [Record] records the watches of resources into a trace.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	// ErrKubeconfig is wrapped by the error for a kubeconfig that cannot be read.
	ErrKubeconfig = errors.New("no kubeconfig")
	// ErrContext is wrapped by the error for an unusable context.
	ErrContext = errors.New("no such cluster")
	// ErrResource is wrapped by the error for a resource that the cluster does not serve or
	// that cannot be watched.
	ErrResource = errors.New("no such resource")
)

// Cluster holds the clients of a cluster.
type Cluster struct {
	Context, Namespace string // of the kubeconfig, which may be missing

	config *rest.Config
	mapper meta.RESTMapper
}

// Connect returns the cluster of a kubeconfig context. An empty path means kubectl's default;
// an empty name means the current context, or the cluster of this pod if there is no
// kubeconfig. Connect sends no request. The error wraps [ErrKubeconfig] or
// [ErrContext].
func Connect(path, name string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	client := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	loaded, err := client.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	name = cmp.Or(name, loaded.CurrentContext)
	if loaded.Contexts[name] == nil && (name != "" || len(loaded.Contexts) > 0) {
		return nil, fmt.Errorf("%w: context %q (the kubeconfig has: %s)", ErrContext, name, strings.Join(slices.Sorted(maps.Keys(loaded.Contexts)), ", "))
	}
	namespace, _, namespaceErr := client.Namespace()
	config, err := client.ClientConfig()
	if err := cmp.Or(err, namespaceErr); err != nil {
		return nil, fmt.Errorf("%w: context %q: %w", ErrContext, name, err)
	}
	c, err := For(config)
	if err != nil {
		return nil, fmt.Errorf("%w: context %q: %w", ErrContext, name, err)
	}
	c.Context, c.Namespace = name, namespace
	return c, nil
}

// For returns the cluster of a client configuration, without a client-side rate limit.
func For(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	if config.UserAgent == "" {
		config.UserAgent = "watchlab"
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(d)
	return &Cluster{
		config: config,
		mapper: restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil),
	}, nil
}

// Client reads and writes objects of any kind.
type Client struct {
	dynamic.Interface
	Mapper    *restmapper.DeferredDiscoveryRESTMapper // of kinds to resources
	Discovery *discovery.DiscoveryClient
}

// NewClient returns the client of a configuration. It sends no request.
func NewClient(config *rest.Config) (*Client, error) {
	objects, err := dynamic.NewForConfig(config)
	found, foundErr := discovery.NewDiscoveryClientForConfig(config)
	if err := cmp.Or(err, foundErr); err != nil {
		return nil, err
	}
	return &Client{objects, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found)), found}, nil
}

// Config returns a copy of the client configuration.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Resource is a resource that a cluster serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind // of the objects
	Namespaced bool                    // the objects have a namespace
}

// Resource finds a resource like kubectl: by plural, singular or short name, with the group
// (deployments.apps) or the group and version (deployments.v1.apps) if needed. The error wraps
// [ErrResource].
func (c *Cluster) Resource(name string) (Resource, error) {
	fully, partly := schema.ParseResourceArg(strings.ToLower(name))
	var kind schema.GroupVersionKind
	var err error
	if fully != nil {
		kind, err = c.mapper.KindFor(*fully)
	}
	if fully == nil || meta.IsNoMatchError(err) {
		kind, err = c.mapper.KindFor(partly.WithVersion(""))
	}
	if err != nil {
		return Resource{}, fmt.Errorf("%w: %q: %w", ErrResource, name, err)
	}
	m, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return Resource{}, fmt.Errorf("%w: %q: %w", ErrResource, name, err)
	}
	return Resource{m.Resource, kind, m.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}
