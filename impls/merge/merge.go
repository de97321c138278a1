// Package merge holds the kubelet's pod-config merge: the contract, its options
// and the variants.
//
// A merger takes pod updates from several sources (file, http, api), holds the
// pods of each, and sends what changed as pod updates of its own to one
// channel, in order. Upstream is kubelet's PodConfig
// (k8s.io/kubernetes v1.31.14, pkg/kubelet/config/config.go), which exports no
// interface; this contract mirrors its shape.
//
// # What every variant guarantees
//
// The notifications are kubelet's, in kubelet's order and with kubelet's
// content (podStorage.Merge and checkAndUpdatePod):
//
//   - An update tells REMOVE, ADD, UPDATE, DELETE, RECONCILE in this order, each
//     at most once and only with pods in it. An empty ADD (after DELETE, before
//     RECONCILE) says that a source's first SET brought no pod to tell of, so
//     that the source counts as ready.
//   - Pods are told apart by UID. A pod differs by its spec, labels,
//     deletionTimestamp, deletionGracePeriodSeconds and annotations, save for
//     the annotations that are kubelet's own. Nil and empty differ, except
//     for annotations. With deletionTimestamp it is told as DELETE, otherwise
//     as UPDATE. A pod that differs in nothing but its status is told as
//     RECONCILE (in Incremental mode; the others take the status in silence).
//   - What is told is the pod as it was first seen with those fields and the
//     status of the newest; other metadata, resourceVersion included, stays
//     that of the first. The annotations are the newest, with config.source,
//     config.seen and a mirror annotation kept from the first.
//   - ADD, UPDATE and DELETE all insert or update; which of them is told
//     depends on what changed. REMOVE goes by UID.
//   - Of pods with one full name (name_namespace) in one update, the first is
//     taken; the others are dropped and the [EventRecorder] is told.
//
// # How unchanged pods are known
//
// Our own variants look at no more of a pod than they must: a pod that comes by
// the pointer by which it came last is unchanged; so is one from [APISource]
// whose UID, name and resourceVersion are those of the pod that came last;
// any other is compared, up to the first difference. The second of these is a
// departure from kubelet, which compares always. It can't show behind a real API
// server, which promises that two objects of one UID and one resourceVersion
// are equal (Kubernetes API concepts, "Resource versions"). An empty
// resourceVersion, and that of any other source, says nothing.
//
// With [TrustGenerations], more of the API server's word is taken: it raises
// metadata.generation whenever a pod's spec changes (Kubernetes v1.34, KEP-5067),
// save for the node that a scheduler binds it to. So of a pod from [APISource]
// whose UID, node and generation, unless that is 0, are those of the pod that
// came last, the spec is not compared. Labels, annotations and the marks of
// deletion, which a generation does not cover, are, and so is the status.
//
// # What is not guaranteed
//
// The order of the pods within a REMOVE that a SET caused and within a snapshot
// (upstream's is that of a Go map). Whether the update of another source takes
// effect while the receiver is slow depends on the variant (see
// Guarantees.Unlocked).
package merge

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls"
)

// Op is what a [PodUpdate] asks for or reports.
type Op int

// The operations, in kubelet's order
// (k8s.io/kubernetes v1.31.14, pkg/kubelet/types/pod_update.go).
const (
	// SET is the whole desired state of a source.
	SET Op = iota
	// ADD brings pods that are new to the source.
	ADD
	// DELETE marks pods that are deleted gracefully.
	DELETE
	// REMOVE takes pods away from the source; only their UID is looked at.
	REMOVE
	// UPDATE changes pods of the source.
	UPDATE
	// RECONCILE reports pods of which nothing but the status differs.
	RECONCILE
)

// String returns the name that kubelet's own words give the operation.
func (o Op) String() string {
	switch o {
	case SET:
		return "SET"
	case ADD:
		return "ADD"
	case DELETE:
		return "DELETE"
	case REMOVE:
		return "REMOVE"
	case UPDATE:
		return "UPDATE"
	case RECONCILE:
		return "RECONCILE"
	default:
		return fmt.Sprintf("Op(%d)", int(o))
	}
}

// The sources that kubelet knows.
const (
	FileSource = "file"
	HTTPSource = "http"
	APISource  = "api"
	// AllSource is the source of what Sync sends.
	AllSource = "*"
)

// The annotations that kubelet keeps for itself: they never make a pod differ.
const (
	ConfigSourceAnnotation    = "kubernetes.io/config.source"
	ConfigMirrorAnnotation    = v1.MirrorPodAnnotationKey
	ConfigFirstSeenAnnotation = "kubernetes.io/config.seen"
)

// PodUpdate is a command: pods, and what to do with them. It can be queued,
// delayed, recorded and replayed.
type PodUpdate struct {
	Pods   []*v1.Pod
	Op     Op
	Source string
}

var (
	// ErrOp is wrapped by the error for an operation that no merger takes.
	ErrOp = errors.New("operation cannot be merged")
	// ErrPod is wrapped by the error for an update that holds a nil pod.
	ErrPod = errors.New("nil pod")
	// ErrSource is wrapped by the error for a call that names no source.
	ErrSource = errors.New("no source named")
	// ErrClosed is wrapped by the error for a call that meets [Merger.Close].
	ErrClosed = errors.New("merger is closed")
)

// Check reports whether the update may be merged: its operation is SET, ADD,
// UPDATE, DELETE or REMOVE, and no pod is nil. The error wraps [ErrOp] or
// [ErrPod]. O(pods).
func (u PodUpdate) Check() error {
	switch u.Op {
	case SET, ADD, UPDATE, DELETE, REMOVE:
	default:
		return fmt.Errorf("%w: %v (allowed: SET, ADD, UPDATE, DELETE, REMOVE)", ErrOp, u.Op)
	}
	for i, pod := range u.Pods {
		if pod == nil {
			return fmt.Errorf("%w: number %d of %d in a %v", ErrPod, i, len(u.Pods), u.Op)
		}
	}
	return nil
}

// Mode is how changes are told.
type Mode string

const (
	// Incremental sends REMOVE, ADD, UPDATE, DELETE and RECONCILE.
	Incremental Mode = "incremental"
	// SnapshotAndUpdates sends UPDATE and DELETE for changed pods, and the
	// whole state as a SET where pods came or went.
	SnapshotAndUpdates Mode = "snapshot-and-updates"
	// Snapshot sends the whole state as a SET on every change.
	Snapshot Mode = "snapshot"
)

// Trust is what is taken on the API server's word.
type Trust string

// What may be trusted.
const (
	// TrustVersions: pods of one UID, name and resourceVersion are equal.
	TrustVersions Trust = "versions"
	// TrustGenerations: moreover, pods of one UID, node and generation have
	// equal specs. It is wrong behind an API server older than v1.34, if that
	// writes generations at all, and for pods that somebody makes up.
	TrustGenerations Trust = "generations"
)

// Merger merges the updates of several sources. All methods may be called from
// any goroutine, save that an [EventRecorder] and [Options.Rejected] must not
// call the merger that calls them; updates of one source take effect in the
// order in which they are handed over. Who makes a merger closes it.
type Merger interface {
	// Channel returns the channel of a source; a later call with the same name
	// returns the same channel. From the first call on, the source counts for
	// SeenAllSources. Updates sent to it are merged under the given name,
	// whatever their Source field says, by a goroutine that ends with the ctx
	// of the call that made the channel or when the channel is closed; after
	// that, a call makes a new one. The channel holds nothing: an update that
	// it accepts while ctx lives is merged, and the next is accepted when that
	// is done. An update that can't be merged goes to [Options.Rejected]. It
	// is an error wrapping [ErrSource] to name no source, and one wrapping
	// [ErrClosed] to come after Close.
	Channel(ctx context.Context, source string) (chan<- PodUpdate, error)

	// Merge takes one update into the state and returns when what it changed
	// has been sent to Updates. The pods of update must not be changed
	// afterwards, as client-go's caches demand of theirs: the merger keeps
	// them and takes a pointer that it has seen last as an unchanged pod. They
	// are not changed by the merger. An update that [PodUpdate.Check] refuses
	// changes nothing and is Check's error; no source is an error wrapping
	// [ErrSource]. If ctx ends first, the update is in the state already, what
	// it had to say is sent before anything of a later call (at the latest by
	// that call), and the error is ctx's. If the merger is closed first, the
	// error wraps [ErrClosed], and what was not sent is lost.
	Merge(ctx context.Context, source string, update PodUpdate) error

	// Updates returns the channel of changes. The pods in it are the
	// receiver's: changing them changes nothing in the merger. With
	// [Options.HandOver] shared they must not be changed. The channel is closed
	// by Close.
	Updates() <-chan PodUpdate

	// SeenAllSources reports whether seen holds every source for which Channel
	// was called, and each of them has sent a SET.
	SeenAllSources(seen sets.Set[string]) bool

	// Sync sends the whole state as a SET of [AllSource]. It returns when that
	// has been sent, or the merger is closed.
	Sync()

	// Close ends the merger and all its goroutines, those of Channel included,
	// and returns when they have ended. It does not wait for a receiver: what
	// waits to be sent is lost, what was sent can still be received, after
	// which Updates is closed. Calls that wait return; those that come later
	// fail or, like Sync, do nothing. SeenAllSources goes on to tell what was.
	// The channels of the sources are left open, and nobody takes from them any
	// more. A second Close does nothing, and waits for the first.
	Close()
}

// EventRecorder is told about pods that are dropped; client-go's
// record.EventRecorder satisfies it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultCapacity is the size of kubelet's channel (v1.31.14).
const DefaultCapacity = 50

// Options build a merger. The zero value is valid for every variant.
type Options struct {
	// Mode is how changes are told; empty means [Incremental].
	Mode Mode
	// Recorder is told about pods that are dropped as duplicates; nil for
	// nobody.
	Recorder EventRecorder
	// Capacity is the size of the channel that Updates returns; 0 means
	// [DefaultCapacity].
	Capacity int
	// HandOver is whose the pods are that Updates tells of: [impls.Owned], which
	// empty means, has them copied, as kubelet does; with [impls.Shared]
	// receivers promise not to write to them, and what they refer to is that of
	// the pods received: no pod is copied deeply. The slices are the receiver's
	// with either.
	HandOver impls.Ownership
	// Trust is what is taken on the API server's word instead of being
	// compared; empty means [TrustVersions].
	Trust Trust
	// Rejected is told about an update that came through a channel and can't
	// be merged; nil for nobody. It is called by the source's goroutine and
	// must not call the merger.
	Rejected func(source string, update PodUpdate, err error)
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	if o.Mode == "" {
		o.Mode = Incremental
	}
	switch o.Mode {
	case Incremental, SnapshotAndUpdates, Snapshot:
	default:
		return Options{}, fmt.Errorf("%w: Mode %q (allowed: %s, %s, %s)",
			impls.ErrOptions, o.Mode, Incremental, SnapshotAndUpdates, Snapshot)
	}
	if o.Capacity < 0 {
		return Options{}, fmt.Errorf("%w: Capacity %d is negative (0 means %d)",
			impls.ErrOptions, o.Capacity, DefaultCapacity)
	}
	if o.Capacity == 0 {
		o.Capacity = DefaultCapacity
	}
	switch o.HandOver {
	case "":
		o.HandOver = impls.Owned
	case impls.Owned, impls.Shared:
	default:
		return Options{}, fmt.Errorf("%w: HandOver %q (allowed: %s, %s)",
			impls.ErrOptions, o.HandOver, impls.Owned, impls.Shared)
	}
	switch o.Trust {
	case "":
		o.Trust = TrustVersions
	case TrustVersions, TrustGenerations:
	default:
		return Options{}, fmt.Errorf("%w: Trust %q (allowed: %s, %s)",
			impls.ErrOptions, o.Trust, TrustVersions, TrustGenerations)
	}
	return o, nil
}

// Label returns guarantees as these options change them, for reports: those of
// a variant say what holds by default.
func (o Options) Label(g impls.Guarantees) impls.Guarantees {
	if o.HandOver == impls.Shared || g.HandsOver != "" && o.HandOver != "" {
		g.HandsOver = o.HandOver
	}
	if o.Trust == TrustGenerations {
		g.Trusts = string(o.Trust)
	}
	return g
}

// Variant is an implementation of this family.
type Variant = impls.Variant[Options, Merger]

var registry = impls.NewRegistry[Options, Merger](impls.Merge)

func init() {
	registry.Register(referenceVariant())
	registry.Register(condVariant())
	registry.Register(channelVariant())
	registry.Register(ringVariant())
	registry.Register(shardedVariant())
}

// Register adds a variant from another module. It panics where the name is
// taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, the baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant, or an error that names those there are.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// New builds a merger of the named variant. The error wraps
// [impls.ErrUnknownVariant] or [impls.ErrOptions] and says what is allowed.
func New(name string, opts Options) (Merger, error) { return registry.New(name, opts) }
