package pipeline_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"watchlab/loadgen/source"
)

func TestMain(m *testing.M) {
	source.RunChild()
	// The tests plant faults, so client-go logs errors.
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("alsologtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	registerFaults()
	registerMistaken()
	registerStores()
	// Parallel tests mostly wait for paces and relists, so more of them run than there are
	// processors.
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
