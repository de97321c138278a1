package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"watchlab/loadgen/share"
	"watchlab/loadgen/storm"
)

// shareFlags say which part of the storm is played.
type shareFlags struct {
	text string

	of share.Of
}

func (f *shareFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "share", "", "play one of several parts of the storm, such as 0/4, the first of four: all events of its keys, at the times that they have in the whole, so that the shares that are played at once, on any machines, are the storm; paces and --events are those of all together")
}

// check reads the flag, and refuses it where there is no storm to be shared.
func (f *shareFlags) check(cmd *cobra.Command, source string) error {
	if !cmd.Flags().Changed("share") {
		return nil
	}
	var err error
	if f.of, err = share.Parse(f.text); err != nil {
		return badFlag("share", err)
	}
	if liveSource(source) {
		return badFlag("share", fmt.Errorf("is not for --source %s", source))
	}
	return nil
}

// balance tells how a storm is divided.
func balance(of share.Of, s *storm.Storm) string {
	sizes := share.Sizes(s, of.Of)
	least, most := sizes[0], sizes[0]
	for _, n := range sizes {
		least, most = min(least, n), max(most, n)
	}
	return fmt.Sprintf("share %v has %d of the storm's %d events; the smallest share has %d, the largest %d",
		of, sizes[of.Index], len(s.Events), least, most)
}
