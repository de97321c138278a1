package experiment

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
)

// Claim compares a figure of two cells.
type Claim struct {
	// Says is the claim in one sentence.
	Says string `json:"says"`
	// Unit of the figures, as in bench.txt.
	Unit string `json:"unit"`
	// Variant has the labels that only the variant's cell has; an empty value stands for a missing label.
	Variant map[string]string `json:"variant"`
	// Baseline has those of the cell that the variant is divided by (default: none; the bound is a figure in the unit).
	Baseline map[string]string `json:"baseline,omitempty"`
	// Relation of the ratio to the bound: at least, at most.
	Relation stats.Relation `json:"relation"`
	// Bound of the ratio variant/baseline. The whole 95 % interval fulfils it (confirmed), nothing of it does (refuted), or the claim is not answered.
	Bound float64 `json:"bound"`
}

func (s *Spec) validateClaims() error {
	if len(s.Claims) > 0 && s.isKnee() {
		return manifest.Bad("claims", "are not for a knee search: its cells depend on its results")
	}
	for i, c := range s.Claims {
		var field, what string
		switch {
		case c.Says == "":
			field, what = "says", "is needed: the claim in one sentence"
		case c.Unit == "":
			field, what = "unit", "is needed, as in events/s"
		case len(c.Variant) == 0:
			field, what = "variant", "is needed: labels of a cell, as in {impl: ring}"
		case c.Relation != stats.AtLeast && c.Relation != stats.AtMost:
			field, what = "relation", manifest.OneOf(string(c.Relation), string(stats.AtLeast), string(stats.AtMost)).Error()
		case !(c.Bound > 0) || math.IsInf(c.Bound, 0):
			field, what = "bound", fmt.Sprintf("%v is not above 0", c.Bound)
		default:
			continue
		}
		return manifest.Bad(fmt.Sprintf("claims.%d.%s", i, field), "%s", what)
	}
	return nil
}

// checkClaims checks that the labels of each claim are those of one cell.
func (p *Plan) checkClaims() error {
	for i, c := range p.Spec.Claims {
		for j, want := range []labels.Set{c.Variant, c.Baseline} {
			cells := 0
			for _, comparison := range p.Comparisons {
				for _, cl := range comparison.Cells {
					if labelled(cl.Labels, want) {
						cells++
					}
				}
			}
			if want != nil && cells != 1 {
				return manifest.Bad(fmt.Sprintf("claims.%d.%s", i, []string{"variant", "baseline"}[j]), "%s has %s, not 1", want, lab.Plural(cells, "cell"))
			}
		}
	}
	return nil
}

func labelled(have lab.Labels, want map[string]string) bool {
	for key, value := range want {
		if have.Label(key) != value {
			return false
		}
	}
	return true
}

// judge answers the claims with the figures of an outcome.
func judge(claims []Claim, o *lab.Outcome) (all []stats.Claim) {
	for _, c := range claims {
		why := ""
		samples := func(want labels.Set) []float64 {
			for _, cl := range o.Cells() {
				if cl.Repeats == "" && want != nil && labelled(cl.Labels, want) {
					if len(cl.Rounds) == 0 {
						why = cl.Verdict.Short()
					}
					return cl.Samples()[c.Unit]
				}
			}
			return nil
		}
		judged := stats.Claim{Says: c.Says, Unit: c.Unit, Variant: labels.Set(c.Variant).String(), Baseline: labels.Set(c.Baseline).String(), Relation: c.Relation, Bound: c.Bound}
		judged.Judge(samples(c.Variant), samples(c.Baseline))
		judged.Why = cmp.Or(why, judged.Why)
		all = append(all, judged)
	}
	return all
}

//go:embed experiments/*.yaml
var builtIn embed.FS

const builtInFolder = "experiments"

// ErrUnknownExperiment is wrapped by errors for an unknown name.
var ErrUnknownExperiment = errors.New("unknown experiment")

// File is an experiment with a question and claims.
type File struct {
	Name    string // of the file, without its ending
	Spec    Spec
	BuiltIn bool // tested with the program

	path string
	data []byte
}

// Blame adds file and line to an error of the Spec.
func (f File) Blame(err error) error { return manifest.Locate(f.path, f.data, err) }

const defaultBudget = 2 * time.Minute // of an experiment that has neither rounds nor a budget

// Limited returns the Spec for a play with a budget; 0 for that of the file.
func (f File) Limited(budget time.Duration) Spec {
	s := f.Spec
	s.Name = f.Name
	switch {
	case budget > 0:
		s.Rounds, s.Budget.Duration = 0, budget
	case s.Rounds == 0 && s.Budget.Duration == 0:
		s.Budget.Duration = defaultBudget
	}
	return s
}

// Experiments returns experiments: NAME is a built-in one, or all whose name begins with NAME and a dash;
// else the name is that of a file. Without names it returns all that are built in.
// Each has a question and claims.
func Experiments(names ...string) ([]File, error) {
	if len(names) == 0 {
		names = []string{""}
	}
	var all []File
	for _, name := range names {
		files, err := filesOf(name)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if slices.ContainsFunc(all, func(o File) bool { return o.Name == f.Name }) {
				return nil, fmt.Errorf("%s: an experiment named %s is given twice", f.path, f.Name)
			}
			if err := f.parse(); err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func (f *File) parse() (err error) {
	if strings.HasPrefix(f.Name, ".") {
		return fmt.Errorf("%s: the name of an experiment begins with a dot", f.path)
	}
	if f.Spec, err = Parse(f.path, f.data); err != nil {
		return err
	}
	switch {
	case f.Spec.Question == "":
		err = manifest.Bad("question", "is needed, in one sentence")
	case len(f.Spec.Claims) == 0:
		err = manifest.Bad("claims", "are needed")
	default:
		err = f.Spec.Validate()
	}
	return f.Blame(err)
}

// filesOf returns the files of a name, not parsed; those of "" are all that are built in.
func filesOf(name string) (files []File, err error) {
	have := manifest.BuiltIn(builtIn, builtInFolder+"/*.yaml")
	for _, stem := range have {
		if name == "" || stem == name || strings.HasPrefix(stem, name+"-") {
			data, err := builtIn.ReadFile(path.Join(builtInFolder, stem+".yaml"))
			if err != nil {
				return nil, err
			}
			files = append(files, File{Name: stem, BuiltIn: true, path: stem + ".yaml", data: data})
		}
	}
	if len(files) > 0 {
		return files, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, `/\.`) {
		return nil, fmt.Errorf("%w %q (have %s)", ErrUnknownExperiment, name, strings.Join(have, ", "))
	}
	return []File{{Name: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), path: name, data: data}}, err
}
