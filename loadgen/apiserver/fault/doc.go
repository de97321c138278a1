// Package fault makes an API server misbehave, by plan: it wraps any
// http.Handler and does to the requests and watches that pass through what
// happens to them in real clusters.
//
//	specs, err := fault.ParseAll("disconnect:every=2s,count=10; gone:at=5s")
//	inj, err := fault.New(specs, seed, nil)
//	handler := inj.Wrap(apiServer)
//	inj.Start()      // times count from here
//	<-inj.Quiet()    // nothing more will happen
//	inj.Stop()
//	inj.Log()        // what was done to whom, and when
package fault
