package workqueue

import (
	"time"

	"k8s.io/utils/clock"
)

// WatchlabNew builds the queue under test. The file watchlab_test.go sets it.
var WatchlabNew func(QueueConfig) Interface

// AdaptedNew stands for New.
func AdaptedNew() Interface { return WatchlabNew(QueueConfig{}) }

// AdaptedNewWithConfig stands for NewWithConfig. Variants have an order of their own, so it leaves out
// the field Queue.
func AdaptedNewWithConfig(c QueueConfig) Interface { return WatchlabNew(c) }

// adaptedNewDelayingQueueWithConfig stands for NewDelayingQueueWithConfig.
func adaptedNewDelayingQueueWithConfig(c DelayingQueueConfig) DelayingInterface {
	c.Queue = WatchlabNew(QueueConfig{Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock})
	return NewDelayingQueueWithConfig(c)
}

// adaptedQueueWithConfig stands for newQueueWithConfig, of a queue whose ticker has another period.
func adaptedQueueWithConfig(c QueueConfig, period time.Duration) Interface {
	c.Clock = ticking{c.Clock, period}
	return WatchlabNew(c)
}

type ticking struct {
	clock.WithTicker
	period time.Duration
}

func (t ticking) NewTicker(time.Duration) clock.Ticker { return t.WithTicker.NewTicker(t.period) }
