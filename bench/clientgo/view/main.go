// Command view keeps a view of the configmaps of namespace default by an informer of client-go, for watchlab client.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		panic(err)
	}
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(client, "configmaps", metav1.NamespaceDefault, fields.Everything()), &corev1.ConfigMap{}, 0)
	go informer.Run(context.Background().Done())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for _, o := range informer.GetStore().List() {
			m := o.(metav1.Object)
			fmt.Println(m.GetName(), m.GetResourceVersion())
		}
		fmt.Println("end")
	}
}
