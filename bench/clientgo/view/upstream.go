//go:build !ours

package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func newInformer(config *rest.Config) (cache.SharedInformer, error) {
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	source := cache.NewListWatchFromClient(client, "configmaps", metav1.NamespaceDefault, fields.Everything())
	return cache.NewSharedInformer(source, &corev1.ConfigMap{}, 0), nil
}
