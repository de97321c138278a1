package cli

import (
	"cmp"
	"fmt"
	"go/doc/comment"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/chart"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/inflate"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
)

// entry is a variant of a family.
type entry struct {
	family                  impls.Family
	name, summary, upstream string
	guarantees              []impls.Guarantees
}

func entries() []entry {
	return slices.Concat(
		entriesOf(impls.Inflate, inflate.Variants()),
		entriesOf(impls.Decode, decode.Variants()),
		entriesOf(impls.DeltaFIFO, deltafifo.Variants()),
		entriesOf(impls.Queue, queue.Variants()),
		entriesOf(impls.Store, store.Variants()),
		entriesOf(impls.Workqueue, workqueue.Variants()),
		entriesOf(impls.Merge, merge.Variants()),
	)
}

func entriesOf[O, T any](f impls.Family, variants []impls.Variant[O, T]) []entry {
	var out []entry
	for _, v := range variants {
		out = append(out, entry{f, v.Name, v.Summary, v.Upstream, v.Guarantees})
	}
	return out
}

func newList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the families, their variants and what each guarantees",
		Example: `  watchlab list`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return listTable(cmd.OutOrStdout(), entries()) },
	}
}

// guaranteeTables are the tables of the list: the families of each and the columns of their guarantees.
var guaranteeTables = []struct {
	families []impls.Family
	columns  []string
	row      func(impls.Guarantees) []string
}{
	{[]impls.Family{impls.Inflate}, []string{"MEMORY"}, func(g impls.Guarantees) []string { return []string{choose(g.Bounded, "bounded", "unbounded")} }},
	{[]impls.Family{impls.Decode}, []string{"TRANSFORM", "HANDLER", "CLIENT", "STRIPS"}, func(g impls.Guarantees) []string {
		return []string{string(g.Transform), string(g.Handler), string(g.Client), dash(g.Strips)}
	}},
	{[]impls.Family{impls.DeltaFIFO, impls.Queue, impls.Merge}, []string{"DELIVERY", "ORDER", "COALESCES", "BOUNDED", "CONSUMERS", "HANDLER", "THROTTLES"}, func(g impls.Guarantees) []string {
		return []string{
			dash(g.Mode), string(g.Order), string(g.Coalesces), choose(g.Bounded, "yes", "no"),
			string(g.Consumers), choose(g.Unlocked, "unlocked", "locked"), dash(string(g.Throttles)),
		}
	}},
	{[]impls.Family{impls.Store}, []string{"LISTS", "READERS"}, func(g impls.Guarantees) []string {
		return []string{string(g.Lists), choose(g.Unlocked, "do not wait for writers", "wait for writers")}
	}},
	{[]impls.Family{impls.Workqueue}, []string{"ORDER"}, func(g impls.Guarantees) []string { return []string{string(g.Order)} }},
}

// listTable prints the guarantees beside each name, in a table for each kind of family, and the
// description below.
func listTable(w io.Writer, all []entry) error {
	for i, t := range guaranteeTables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		table := chart.NewTable("", append([]string{"FAMILY", "VARIANT"}, t.columns...))
		table.Gap = 1
		for _, e := range all {
			for _, g := range e.guarantees {
				if slices.Contains(t.families, e.family) {
					table.Add(append([]string{string(e.family), e.name}, t.row(g)...)...)
				}
			}
		}
		if err := table.Text(w); err != nil {
			return err
		}
	}
	for _, e := range all {
		text := e.summary
		var dropIns []string
		for _, g := range e.guarantees {
			if g.DropIn != "" && !slices.Contains(dropIns, g.DropIn) {
				dropIns = append(dropIns, g.DropIn)
			}
		}
		if len(dropIns) > 0 {
			text += "; drop-in: " + strings.Join(dropIns, ", ")
		}
		if e.upstream != "" {
			text += "; from " + e.upstream
		}
		doc := (&comment.Parser{}).Parse(text)
		fmt.Fprintf(w, "\n%s/%s\n%s", e.family, e.name, (&comment.Printer{TextPrefix: "  ", TextWidth: listWidth - 2}).Text(doc))
	}
	return nil
}

const listWidth = 100

func dash(s string) string { return cmp.Or(s, "-") }

func choose(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
