package upstream

import (
	"slices"

	"watchlab/impls/store"
)

// The tables of client-go's tests of stores. Its other tests build stores too: they run on a variant
// of this family in these runs, and on client-go's in all others.
func init() {
	for from, to := range map[string]string{
		"NewStore":           "newAdaptedStore",
		"NewIndexer":         "newAdaptedIndexer",
		"NewThreadSafeStore": "newAdaptedThreadSafeStore",
	} {
		constructors[from] = to
		storeConstructors, upstreamStores = append(storeConstructors, to), append(upstreamStores, from)
	}
	types["threadSafeMap"] = "adaptedThreadSafeStore"
	fields["thread_safe_store_test.go"] = map[string]string{"indices": "indices()"}
	whiteBox["TestCacheWithTransformer"] = "sets the option WithTransformer, which the stores of the family lack"
	whiteBox["TestWithStoreMetricsDefaulting"] = "reads the metrics provider of the store"
	joined["watchlab_stores.go"] = "testdata/cache/stores_adapter_test.go"
}

var storeConstructors, upstreamStores []string

// storeRuns returns a run for each variant of the stores.
func (s *suite) storeRuns() (runs []run) {
	for _, v := range store.Variants() {
		r := run{
			name: "store/" + v.Name, env: []string{"WATCHLAB_STORE=" + v.Name, "WATCHLAB_VARIANT=clientgo", "WATCHLAB_DELIVERY=in-order"},
			tests: s.reaching(storeConstructors...), skipped: map[string]string{},
		}
		for _, test := range s.reaching(upstreamStores...) {
			if reason := whiteBox[test]; reason != "" && !slices.Contains(r.tests, test) {
				r.skipped[test] = reason
			}
		}
		runs = append(runs, r)
	}
	return runs
}
