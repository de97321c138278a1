package experiment

import (
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
)

//go:embed quick.yaml
var quickYAML []byte

// Quick returns the default experiment of a run without arguments.
func Quick() Spec {
	s, err := Parse("quick.yaml", quickYAML)
	if err != nil {
		panic(err) // A test reads it.
	}
	return s
}

// runFields are the fields that the quick experiment accepts: they do not choose
// variants, pipeline or storm.
var runFields = []string{"rounds", "budget", "seed", "memory", "profiles"}

// named returns the quick experiment if the Spec names nothing to play; else the Spec.
func (s Spec) named() (Spec, error) {
	if s.Family != "" || s.Pipeline != "" || s.Storm.Name != "" || s.Search != nil || len(s.Parts) > 0 {
		return s, nil
	}
	for _, f := range Given(&s) {
		if !slices.Contains(runFields, f.Path) {
			return s, badField(f.Path, errors.New("needs --family: the quick experiment has its own"))
		}
	}
	quick := Quick()
	if s.Rounds > 0 || s.Budget.Duration > 0 {
		// Given rounds or a given budget replace the quick run's, and leave no time for
		// retries.
		quick.Rounds, quick.Budget.Duration, quick.RetryPaces = 0, 0, 0
	}
	return quick, json.Unmarshal(s.JSON(), &quick)
}
