// Package fault makes an API server misbehave, by plan: it wraps any
// http.Handler and does to the requests and watches that pass through what
// happens to them in real clusters.
//
//	specs, err := fault.ParseAll("disconnect:every=2s,count=10; gone:at=5s")
//	inj, err := fault.New(specs, seed, nil)
//	handler := inj.Wrap(apiServer)
//	err = inj.Start()  // times count from here
//	<-inj.Quiet()      // nothing more will happen
//	inj.Stop()
//	inj.Log()          // what was done to whom, and when
//
// None of the faults breaks a promise of the watch: what a client receives in
// spite of them is in order, and what it doesn't it can get by going on from
// where it was, or by listing again where it is told that it has to. A client
// that ends up with anything else than what the server has, has a bug.
//
// # What is struck
//
// Requests below a resource (/api/v1/…, /apis/group/version/…): discovery,
// OpenAPI and health always work. Watches are told from their query, as an API
// server does; a watch is open from when it is answered with 200. Before Start
// and after Stop everything passes through.
//
// The handler that is wrapped must end each Write of a watch where a frame ends
// (JSON lines, length-delimited protobuf, a CBOR sequence), and must end a watch
// when the context of its request ends.
//
// # What is reproducible
//
// All that is left to chance (whether and whom, where a frame is cut, which
// garbage) is drawn from the seed, the number of the fault, of its occurrence
// and of the watch or request: the order in which goroutines run doesn't change
// it. Watches and requests are numbered as they come, so that a single client
// meets the same faults each time; what it was doing at the moment depends on
// the clock, save for faults that are triggered by frames.
package fault
