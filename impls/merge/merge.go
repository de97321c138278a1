// Package merge defines the kubelet's pod-config merge: the contract, its options and the variants.
//
// A merger receives pod updates from several sources (file, http, api) and stores the pods of each
// source. It sends the changes as pod updates to one channel, in order. Upstream is kubelet's
// PodConfig (k8s.io/kubernetes v1.31.14, pkg/kubelet/config/config.go), which exports no interface.
// This contract has the same methods.
//
// # What every variant guarantees
//
// Notifications have kubelet's content and order (podStorage.Merge and checkAndUpdatePod):
//
//   - An update sends REMOVE, ADD, UPDATE, DELETE and RECONCILE in this
//     order, each at most once and only if it has pods. If the first SET of a
//     source adds no pod, an empty ADD (after DELETE, before RECONCILE) marks
//     the source as ready.
//   - The UID identifies a pod. A pod is changed if its spec, labels,
//     deletionTimestamp, deletionGracePeriodSeconds or annotations differ,
//     apart from kubelet's own annotations. Nil and empty differ, except for
//     annotations. A changed pod with a deletionTimestamp is sent as DELETE,
//     otherwise as UPDATE. A pod with a new status only is sent as RECONCILE.
//   - A sent pod has the compared fields and the status of the newest update.
//     Other metadata, including resourceVersion, stays that of the first.
//     Annotations are the newest, but config.source, config.seen and a mirror
//     annotation stay those of the first.
//   - ADD, UPDATE and DELETE all insert or update; the change of the pod
//     determines the notification. REMOVE removes by UID.
//   - If several pods of one update have the same full name (name_namespace),
//     the first is used. The others are dropped and reported to the
//     [EventRecorder].
//
// # How variants detect unchanged pods
//
// The reference variant compares all fields, like kubelet. The others stop at the
// first rule that applies:
//
//  1. A pod with the same pointer as in the last update is unchanged.
//  2. A pod from [APISource] with the UID, name and resourceVersion of the
//     last update is unchanged.
//  3. Any other pod is compared up to the first difference.
//
// Rule 2 deviates from kubelet. The deviation is invisible behind a real API server, which
// guarantees that objects with one UID and one resourceVersion are equal (Kubernetes API concepts,
// "Resource versions"). The rule ignores an empty resourceVersion and those of other sources.
//
// By rule 1, a pod that the sender changes in place and sends again gives no UPDATE. Kubelet, which
// holds the received pod itself, sends none either; reference holds a shallow copy and sees only
// fields that were assigned. With KUBE_CACHE_MUTATION_DETECTOR=true, client-go's mutation detector
// watches the received pods: it prints the change and panics. It is for debugging, as it copies
// every received pod.
//
// # What is not guaranteed
//
// The order of pods in a REMOVE caused by a SET, and in a snapshot, is undefined
// (upstream iterates over a Go map). Guarantees.Unlocked says whether updates of
// other sources take effect while the receiver is slow.
package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls"
)

// Op is the operation of a [PodUpdate].
type Op int

// The operations, in kubelet's order (k8s.io/kubernetes v1.31.14, pkg/kubelet/types/pod_update.go).
const (
	SET       Op = iota // the complete desired state of a source
	ADD                 // adds new pods to the source
	DELETE              // marks pods for graceful deletion
	REMOVE              // removes pods from the source by UID
	UPDATE              // changes pods of the source
	RECONCILE           // reports pods whose status alone has changed
)

var opNames = [...]string{"SET", "ADD", "DELETE", "REMOVE", "UPDATE", "RECONCILE"}

// String returns kubelet's name of the operation.
func (o Op) String() string {
	if o < 0 || int(o) >= len(opNames) {
		return fmt.Sprintf("Op(%d)", int(o))
	}
	return opNames[o]
}

// The sources that kubelet knows.
const (
	FileSource = "file" // static pod manifests on disk
	HTTPSource = "http" // static pod manifests from a URL
	APISource  = "api"  // the API server
	AllSource  = "*"    // of the snapshots that Sync sends
)

// The annotations that kubelet sets itself. They are not compared.
const (
	ConfigSourceAnnotation    = "kubernetes.io/config.source" // names the source of the pod
	ConfigMirrorAnnotation    = v1.MirrorPodAnnotationKey     // marks the mirror pod of a static pod
	ConfigFirstSeenAnnotation = "kubernetes.io/config.seen"   // when kubelet first received the pod
)

// PodUpdate is a command: an operation on pods. It can be queued, delayed, recorded and replayed.
type PodUpdate struct {
	Pods   []*v1.Pod // none may be nil
	Op     Op
	Source string // the origin of the pods, such as [APISource]
}

// The errors of a [Merger] wrap these.
var (
	ErrOp     = errors.New("operation cannot be merged") // see [PodUpdate.Check]
	ErrPod    = errors.New("nil pod")                    // in an update
	ErrSource = errors.New("no source named")            // the name is empty
	ErrClosed = errors.New("merger is closed")           // for a call during or after [Merger.Close]
)

// Check returns nil if the update can be merged: its operation is SET, ADD, UPDATE, DELETE or
// REMOVE, and no pod is nil. The error wraps [ErrOp] or [ErrPod]. O(pods).
func (u PodUpdate) Check() error {
	if u.Op < SET || u.Op >= RECONCILE {
		return fmt.Errorf("%w: %v (allowed: SET, ADD, UPDATE, DELETE, REMOVE)", ErrOp, u.Op)
	}
	for i, pod := range u.Pods {
		if pod == nil {
			return fmt.Errorf("%w: number %d of %d in a %v", ErrPod, i, len(u.Pods), u.Op)
		}
	}
	return nil
}

// Merger merges the updates of several sources. All methods are safe for concurrent use, but an
// [EventRecorder] and [Options.Rejected] must not call their merger. Updates of one source take
// effect in the order of the calls. The creator of a merger must close it.
type Merger interface {
	// Channel returns the channel of a source. Later calls with the same name
	// return the same channel. The first call adds the source to SeenAllSources.
	//
	// A goroutine merges the updates under the given name and ignores their Source field. It ends
	// with the ctx of the first call or when the channel is closed; a later call then creates a new
	// channel. The channel is unbuffered: an update that it accepts before ctx ends is merged
	// before the next one is accepted.
	//
	// An invalid update goes to [Options.Rejected]. The error wraps [ErrSource]
	// for an empty name, and [ErrClosed] after Close.
	Channel(ctx context.Context, source string) (chan<- PodUpdate, error)

	// Merge applies one update and returns when its notifications have been sent to Updates.
	//
	// The caller must not change the pods of update afterwards, as with the
	// objects of client-go's caches. The merger keeps them, does not change them,
	// and treats the same pointer in the next update as an unchanged pod.
	//
	// The error is that of [PodUpdate.Check] for an invalid update, which changes nothing. It wraps
	// [ErrSource] for an empty source. If ctx ends first, the error is that of ctx; the update has
	// taken effect, and its notifications are sent before those of any later call. If the merger is
	// closed first, the error wraps [ErrClosed], and unsent notifications are lost.
	Merge(ctx context.Context, source string, update PodUpdate) error

	// Updates returns the channel of notifications. The receiver owns the slices and the
	// pods in them and may change them. Close closes the channel.
	Updates() <-chan PodUpdate

	// SeenAllSources reports whether every source of a Channel call is in seen and has sent a SET.
	SeenAllSources(seen sets.Set[string]) bool

	// Sync sends the complete state as a SET of [AllSource]. It returns when the
	// SET has been sent or the merger is closed.
	Sync()

	// Close ends the merger and all its goroutines, and returns when they have ended. It does not
	// wait for a receiver: unsent notifications are lost, sent ones can still be received, and then
	// Updates is closed. Waiting calls return. Later calls fail; Sync does nothing; SeenAllSources
	// returns the last state. The channels of the sources stay open, but nobody receives from them.
	// A second Close waits for the first.
	Close()
}

// EventRecorder receives events about dropped pods; client-go's record.EventRecorder implements it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultCapacity is the capacity of kubelet's channel (v1.31.14).
const DefaultCapacity = 50

// Options configures a merger. The zero value is valid for every variant.
type Options struct {
	Recorder EventRecorder // receives an event for each pod dropped as a duplicate; nil means none
	Capacity int           // of the Updates channel, in notifications; 0 means [DefaultCapacity]
	// Rejected receives an invalid update that came through a channel; nil means
	// none. The goroutine of the source calls it. It must not call the merger.
	Rejected func(source string, update PodUpdate, err error)
}

// complete checks the options and sets the defaults.
func (o Options) complete() (Options, error) {
	o.Capacity = cmp.Or(o.Capacity, DefaultCapacity)
	if o.Capacity < 0 {
		return Options{}, fmt.Errorf("%w: Capacity %d is negative (0 means %d)",
			impls.ErrOptions, o.Capacity, DefaultCapacity)
	}
	return o, nil
}

// Variant is an implementation of this family.
type Variant = impls.Variant[Options, Merger]

var registry = impls.NewRegistry[Options, Merger](impls.Merge)

func init() {
	baseline := impls.Guarantees{
		Order:     impls.OrderTotal,
		Coalesces: impls.CoalesceNone,
		Bounded:   true,
		Consumers: impls.ManyConsumers,
	}
	reference := newVariant("reference", "one mutex held while sending, map rebuilt on SET, reflect.DeepEqual on every pod",
		baseline, newReference)
	reference.Upstream = "kubelet v1.31 algorithm"
	Register(reference)
	unlocked := baseline
	unlocked.Unlocked = true
	Register(newVariant("cond", "mutex and condition variable, unchanged pods known by pointer or version, sent without a lock",
		unlocked, newCond))
	Register(newVariant("channel", "an owner goroutine holds state and outbox, commands come by a channel, notifications leave by select",
		unlocked, newChannel))
	Register(newVariant("ring", "commands through a lock-free ring; the caller that finds it unattended merges and sends for all",
		unlocked, newCombiner))
	Register(newVariant("sharded", "a lock and a state for each source, big fresh lists compared on several cores, one outbox",
		unlocked, newSharded))
}

// newVariant returns a variant that completes the options before it builds.
func newVariant(name, summary string, g impls.Guarantees, build func(Options) Merger) Variant {
	return Variant{Name: name, Summary: summary, Guarantees: []impls.Guarantees{g}, New: func(o Options) (Merger, error) {
		o, err := o.complete()
		if err != nil {
			return nil, err
		}
		return build(o), nil
	}}
}

// Register adds a variant from another module. It panics if the name is taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant. The error wraps [impls.ErrUnknownVariant] and
// lists the registered names.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// New builds a merger of the named variant. The error wraps
// [impls.ErrUnknownVariant] or [impls.ErrOptions] and lists the allowed values.
func New(name string, opts Options) (Merger, error) { return registry.New(name, opts) }
