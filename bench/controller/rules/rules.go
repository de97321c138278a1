// Package rules says what a controller should do: which write answers which event, and which state it
// leaves in the end. A file of rules is YAML:
//
//	rules:
//	- after: pods MODIFIED phase=Failed
//	  expect: write to status of its owner
//	  when: .spec.nodeName != null     # optional
//	  within: 10s                      # optional
//	never:
//	- event: persistentvolumeclaims DELETED
//	  while: its owner                 # optional: exists
//	final:
//	- each: deployments.apps
//	  where: .spec.paused | not        # optional
//	  has: .status.observedGeneration == .metadata.generation
//	  owns: {resource: replicasets.apps, where: .spec.replicas > 0, count: "1"}
//
// # Events
//
// after is RESOURCE [TYPE[|TYPE]] [FIELD=VALUE[|VALUE]] [FIELD!=VALUE[|VALUE]]. RESOURCE is a plural name such as
// pods, of any group, or deployments.apps, or * for all. TYPE is ADDED, MODIFIED or DELETED (default: all).
// FIELD is a path such as status.phase, spec.replicas or metadata.labels.app; a path that begins elsewhere is
// one of the status, the spec or the metadata, in this order; a name with a capital such as Ready is the status
// of a condition. With fields, MODIFIED means that the object did not match before.
//
// when is a jq expression over the object; $before is the object before the change, null for ADDED.
//
// by says whose changes count, one or a list of storm, workload, lifecycle and controller (default: all but
// controller). A controller's own writes are rarely events that it should answer.
//
// Events before the start of the storm ask for nothing, and neither do events whose target does not exist,
// such as the owner of an object without one. For *, changes of nothing but times (heartbeats) ask for
// nothing either.
//
// # Answers
//
// expect is VERB [to] [SUBRESOURCE of] TARGET, or a list of which any answers. VERB is write (any), create,
// update, patch, apply or delete, which includes evictions. Without a subresource, write is to any part of the object and the
// others are to the object itself. TARGET is:
//
//	it
//	its owner                          the controller, or each owner if none is one
//	RESOURCE that owns it              also the owner of an owner
//	RESOURCE it owns                   also what that owns
//	RESOURCE of the same name          in the same namespace, if both have one
//
// The answer is the first successful write of a controller that arrives after the event became visible.
// Controllers are level-triggered: one write answers all events of its target since the last one, those that a later change of
// the same object superseded included. A write that was on its way for another reason counts, too, so
// latencies are lower bounds if the target has much traffic. If it has little, a write for
// another reason may come much later; when and fields exclude events that ask for nothing.
//
// An event without an answer is no failure, except in a rule with within; see [Rules.Judge].
//
// # What must not happen
//
// event, when and by are those of events; by is controller by default. while is its owner, RESOURCE that owns it or
// RESOURCE of the same name, which must exist at the time of the event, without the mark of a deletion. Each such event is a violation.
//
// # Final state
//
// each selects objects that exist at the end, by resource and where. written: status limits them to those
// whose status a controller wrote. has is a condition that must hold. owns counts owned objects, which must be
// as many as count, a jq expression over the owner, says.
package rules

import (
	"time"

	"watchlab/bench/controller/record"
)

// Rules are the rules of one or more files. They are immutable.
type Rules struct {
	rules  []rule
	nevers []never
	finals []final
}

// Reaction is an event that asks for an answer, with the answer.
type Reaction struct {
	Rule    string         // name of the rule
	Event   *record.Change // event that matched
	Answer  *record.Access // first write that answers it; nil if there is none
	Latency time.Duration  // from the event's intended time to the answer's arrival; 0 without an answer
	Phase   string         // of the storm at the event's intended time
}

// Violation is an object whose final state is not what a rule says, or an event that was not answered in time or must not
// happen.
type Violation struct {
	Rule   string
	Object string // resource and key, as in deployments.apps default/web
	Text   string // what is wrong, as in "3 pods, want 5"
	// Last is the last change of the object, or of what it should own; nil if there was none.
	Last *record.Change
}
