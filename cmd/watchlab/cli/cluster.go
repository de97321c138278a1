package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/fleet"
	"watchlab/loadgen/source/cluster"
)

func newCluster() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "cluster",
		Short: "Play a storm from many pods of a cluster and merge their results",
		Long: `cluster plays an experiment as a Kubernetes Indexed Job. Each pod plays a share of the
storm, and all start each cell together. run starts the Job, status shows it, collect
merges the results into one folder, clean deletes everything.`,
		Example: `  watchlab cluster run --context kind-watchlab --overlay kind --name mine -- --storm nodeloss --nodes 100
  watchlab cluster status --context kind-watchlab --name mine
  watchlab cluster collect --context kind-watchlab --name mine
  watchlab cluster clean --context kind-watchlab --name mine`,
	}, newClusterRun(), newClusterStatus(), newCollect(), newClusterClean())
}

type clusterFlags struct{ kubeconfig, context string }

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl finds it)")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default: the current one)")
}

func (f *clusterFlags) connect(cmd *cobra.Command) (*cluster.Cluster, error) {
	c, err := cluster.Connect(f.kubeconfig, f.context)
	switch {
	case err == nil:
		return c, nil
	case cmd.Flags().Changed("context") && !errors.Is(err, cluster.ErrKubeconfig):
		return nil, badFlag("context", err)
	}
	return nil, badFlag("kubeconfig", err)
}

type placeFlags struct {
	clusterFlags
	namespace, name string
}

func (f *placeFlags) add(cmd *cobra.Command) {
	f.clusterFlags.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", fleet.Namespace, "namespace of the run")
	fl.StringVar(&f.name, "name", "", "name of the run")
}

// connect connects to the cluster. Verbs that write require --context.
func (f *placeFlags) connect(cmd *cobra.Command, writes bool) (*cluster.Cluster, *fleet.Fleet, error) {
	if writes && !cmd.Flags().Changed("context") {
		return nil, nil, badFlag("context", errors.New("is required: this verb writes to the cluster"))
	}
	c, err := f.clusterFlags.connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	fl, err := fleet.New(c.Config())
	return c, fl, err
}

// status connects to the cluster and returns the state of the named run.
func (f *placeFlags) status(cmd *cobra.Command) (c *cluster.Cluster, s fleet.State, err error) {
	c, fl, err := f.connect(cmd, false)
	switch {
	case err != nil:
		return c, s, err
	case f.name == "":
		return c, s, badFlag("name", errors.New("is required"))
	}
	if s, err = fl.Status(cmd.Context(), fleet.Ref{Namespace: f.namespace, Run: f.name}); errors.Is(err, fleet.ErrNoRun) {
		err = badFlag("name", err)
	}
	return c, s, err
}

func newClusterStatus() *cobra.Command {
	var f placeFlags
	var out outputFlag[fleet.State]
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the pods of a run and their progress",
		Long: `status shows each pod of a run with its node, phase, failures, progress, and whether its
result is in the cluster.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, state, err := f.status(cmd)
			if err != nil {
				return err
			}
			return out.show(cmd.OutOrStdout(), state)
		},
	}
	f.add(cmd)
	out.addText(cmd, "table", method(fleet.State.Print))
	return cmd
}

func newClusterClean() *cobra.Command {
	var f placeFlags
	var all bool
	limit := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Delete a run and its results from the cluster",
		Long: `clean deletes all objects of a run and its results. Collect them first. --all deletes all
runs of the namespace, their shared objects, and the namespace if watchlab created it. After
a refusal or a timeout, clean can be repeated.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all && f.name != "":
				return badFlag("all", errors.New("excludes --name"))
			case !all && f.name == "":
				return badFlag("name", errors.New("is required, or --all"))
			case limit <= 0:
				return badFlag("timeout", fmt.Errorf("%v is not more than 0", limit))
			}
			_, fl, err := f.connect(cmd, true)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			flag, left := "name", "of run "+f.name
			if all {
				flag, left = "namespace", "in namespace "+f.namespace
				err = fl.CleanAll(ctx, f.namespace)
			} else {
				err = fl.Clean(ctx, fleet.Ref{Namespace: f.namespace, Run: f.name})
			}
			switch {
			case errors.Is(err, fleet.ErrNoRun):
				return badFlag(flag, err)
			case err != nil:
				return err
			}
			warn(cmd.ErrOrStderr(), "nothing is left %s", left)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "delete all runs of the namespace, and the namespace")
	cmd.Flags().DurationVar(&limit, "timeout", limit, "timeout of the deletion")
	return cmd
}
