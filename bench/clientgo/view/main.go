// Command view keeps a view of the configmaps of namespace default for watchlab client, by an informer of client-go or,
// with the tag ours, of package informer as README recommends it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	informer, err := newInformer(config)
	if err != nil {
		panic(err)
	}
	go informer.Run(context.Background().Done())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for _, o := range informer.GetStore().List() {
			m := o.(metav1.Object)
			fmt.Println(m.GetName(), m.GetResourceVersion())
		}
		fmt.Println("end")
	}
}
