package trace

import "watchlab/loadgen/storm"

// Names returns the names of the recordings that are built in, sorted.
func Names() []string { return recordedNames() }

// Load makes a storm of a recording: one of those that are built in, by name,
// or a file, by path.
func Load(nameOrPath string) (*storm.Storm, error) {
	return load(nameOrPath)
}
