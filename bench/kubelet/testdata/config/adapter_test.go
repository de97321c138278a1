// Package config: this file joins the copy of kubelet's package (upstream_test.go).
package config

import (
	"context"
	"os"
	"sync"

	"k8s.io/client-go/tools/record"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"k8s.io/apimachinery/pkg/util/sets"

	_ "watchlab/bench/kubelet"
	"watchlab/impls/merge"
)

// podConfig are the methods of PodConfig.
type podConfig interface {
	Channel(ctx context.Context, source string) chan<- any
	Updates() <-chan kubetypes.PodUpdate
	SeenAllSources(sets.Set[string]) bool
	Sync()
}

// adaptedPodConfig stands for PodConfig. Modes other than kubelet's own are upstream's.
type adaptedPodConfig struct{ podConfig }

func newAdaptedPodConfig(mode PodConfigNotificationMode, recorder record.EventRecorder, observer podStartupSLIObserver) *adaptedPodConfig {
	if mode != PodConfigNotificationIncremental {
		return &adaptedPodConfig{NewPodConfig(mode, recorder, observer)}
	}
	m, err := merge.New(os.Getenv("WATCHLAB_VARIANT"), merge.Options{Recorder: recorder})
	if err != nil {
		panic(err)
	}
	updates := make(chan kubetypes.PodUpdate)
	go func() {
		for u := range m.Updates() {
			updates <- kubetypes.PodUpdate{Pods: u.Pods, Op: kubetypes.PodOperation(u.Op), Source: u.Source}
		}
	}()
	return &adaptedPodConfig{&adaptedMerger{Merger: m, updates: updates, channels: map[string]chan any{}}}
}

// adaptedMerger gives a variant the types of PodConfig. It copies pods that come in: the tests change a pod
// in place and send it again, and the contract treats the same pointer as an unchanged pod.
type adaptedMerger struct {
	merge.Merger
	updates  chan kubetypes.PodUpdate
	mu       sync.Mutex
	channels map[string]chan any
}

func (m *adaptedMerger) Updates() <-chan kubetypes.PodUpdate { return m.updates }

func (m *adaptedMerger) Channel(ctx context.Context, source string) chan<- any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if in, ok := m.channels[source]; ok {
		return in
	}
	out, err := m.Merger.Channel(ctx, source)
	if err != nil {
		panic(err)
	}
	in := make(chan any)
	m.channels[source] = in
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case u := <-in:
				update := u.(kubetypes.PodUpdate)
				copied := merge.PodUpdate{Op: merge.Op(update.Op), Source: source}
				for _, pod := range update.Pods {
					copied.Pods = append(copied.Pods, pod.DeepCopy())
				}
				out <- copied
			}
		}
	}()
	return in
}
