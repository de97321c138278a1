//go:build ours

package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/informer"
)

func newInformer(config *rest.Config) (cache.SharedInformer, error) {
	return informer.ForResource(config, corev1.SchemeGroupVersion.WithResource("configmaps"), &corev1.ConfigMap{},
		informer.Options{Decode: "shared", Inflate: "members"})
}
