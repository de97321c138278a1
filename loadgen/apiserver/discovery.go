package apiserver

import (
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// discover returns what a discovery path is answered with, nil where the path
// isn't one. The server has one group, one version of it and one resource.
func (s *Server) discover(path string) any {
	gv := s.storm.Resource.GroupVersion()
	core := gv.Group == ""
	switch path {
	case "/version":
		return &version.Info{
			Major:        "1",
			Minor:        "36",
			GitVersion:   "v1.36.0-watchlab",
			GitTreeState: "clean",
			GoVersion:    runtime.Version(),
			Compiler:     runtime.Compiler,
			Platform:     runtime.GOOS + "/" + runtime.GOARCH,
		}
	case "/api":
		versions := &metav1.APIVersions{
			TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
			Versions:                   []string{},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}
		if core {
			versions.Versions = append(versions.Versions, gv.Version)
		}
		return versions
	case "/apis":
		groups := &metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups:   []metav1.APIGroup{},
		}
		if !core {
			groups.Groups = append(groups.Groups, *s.group())
		}
		return groups
	case s.prefix():
		return &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(),
			APIResources: []metav1.APIResource{{
				Name:         s.storm.Resource.Resource,
				SingularName: strings.ToLower(s.storm.Kind.Kind),
				Namespaced:   s.namespaced,
				Kind:         s.storm.Kind.Kind,
				Verbs:        metav1.Verbs{"get", "list", "watch"},
			}},
		}
	case "/apis/" + gv.Group:
		if core {
			return nil
		}
		group := s.group()
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return group
	default:
		return nil
	}
}

// group describes the storm's group, which isn't the core group.
func (s *Server) group() *metav1.APIGroup {
	gv := s.storm.Resource.GroupVersion()
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return &metav1.APIGroup{
		Name:             gv.Group,
		Versions:         []metav1.GroupVersionForDiscovery{v},
		PreferredVersion: v,
	}
}
