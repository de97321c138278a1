package informer

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const minimumResync = time.Second // of a handler (client-go v0.37, minimumResyncPeriod)

func (s *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

func (s *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

func (s *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, opts cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because it has stopped already", handler)
	}
	logger := klog.Background()
	if opts.Logger != nil {
		logger = *opts.Logger
	}
	period := s.defaultResync
	if opts.ResyncPeriod != nil {
		period = *opts.ResyncPeriod
	}
	l := newListener(logger, handler, registrationName(s.example, handler), s.handlers)
	l.resyncPeriod = s.admitResync(logger, period)
	l.nextResync = time.Now().Add(l.resyncPeriod)
	if !s.started {
		s.distributor.add(l)
		return l, nil
	}

	// The indexer does not change between the list and the addition, so the handler receives later
	// objects as events. The list must come first: otherwise the handler could be reported as
	// synced before its initial objects are counted.
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	l.addInitial(s.indexer.List())
	s.distributor.add(l)
	if s.HasSynced() {
		l.tracker.UpstreamHasSynced()
	}
	return l, nil
}

// registrationName returns client-go's name of a registration. client-go exports no
// function for it, hence the informer that never runs.
func registrationName(example runtime.Object, handler cache.ResourceEventHandler) string {
	// The only error is that of a stopped informer.
	r, _ := cache.NewSharedIndexInformer(nil, example, 0, nil).AddEventHandler(handler)
	return r.HasSyncedChecker().Name()
}

// admitResync returns the allowed resync period of a new handler; 0 means never. A
// period below the informer's shortens the interval of resync checks, unless the
// informer is running. The caller holds mu.
func (s *informer) admitResync(logger klog.Logger, period time.Duration) time.Duration {
	if 0 < period && period < minimumResync {
		logger.Info("Warning: the resync period of a handler is too short and is lengthened", "resyncPeriod", period, "minimum", minimumResync)
		period = minimumResync
	}
	if 0 < period && period < s.resyncCheck && !s.started {
		s.resyncCheck = period
	}
	switch {
	case period == 0:
	case s.resyncCheck == 0:
		logger.Info("Warning: the informer does no resyncs; the resync period of a handler is ignored", "resyncPeriod", period)
		period = 0
	case period < s.resyncCheck:
		logger.Info("Warning: the resync period of a handler is lengthened to that of its informer", "resyncPeriod", period, "informer", s.resyncCheck)
		period = s.resyncCheck
	}
	return period
}

// RemoveEventHandler implements [cache.SharedInformer]. It ignores a handler that
// is removed already or belongs to another informer.
func (s *informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*listener)
	if !ok {
		return fmt.Errorf("a handle of type %T is not one of this kind of informer (want what AddEventHandler returned)", handle)
	}
	s.distributor.remove(l)
	return nil
}
