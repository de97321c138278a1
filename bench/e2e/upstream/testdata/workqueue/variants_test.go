package workqueue_test

import (
	"os"

	"k8s.io/client-go/util/workqueue"

	variants "watchlab/impls/workqueue"
)

func init() {
	workqueue.WatchlabNew = func(c workqueue.QueueConfig) workqueue.Interface {
		q, err := variants.New(os.Getenv("WATCHLAB_WORKQUEUE"), variants.Options[any]{
			Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
		})
		if err != nil {
			panic(err)
		}
		return q
	}
}
