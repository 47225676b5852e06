package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/memory"
)

func (a *app) serveCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run one node of a domain",
		Long: `Run one node of a domain, as its configuration says ("roster config" prints one).

SIGINT, SIGTERM and SIGHUP end it in good order: leadership is handed over, requests
under way are answered. A second signal ends it at once. Logs go to standard error.

Its memory limit is 90% of its cgroup's and at most 75% of the machine's memory, unless
GOMEMLIMIT is set.`,
		Args: needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usage("no configuration is given").because("--config FILE names it; a documented sample is printed by:").try(a.program + " config")
			}
			return a.serve(c.Context(), file)
		},
	}
	c.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	return c
}

func (a *app) serve(ctx context.Context, file string) error {
	cfg, err := config.Load(file)
	if err != nil {
		return usage("the configuration can't be used: %w", err).try(a.program + " config")
	}
	log := cfg.Log.Logger(a.stderr)
	defer memory.Govern(os.DirFS("/"), log)()
	n, err := node.Start(cfg, node.Env{Logger: log, Context: ctx})
	if err != nil && ctx.Err() != nil {
		log.Info("stopping before the start was over", "error", err)
		return nil
	}
	if err != nil {
		return mend(failed(exitFailed, "the node can't start: %w", err), err, &cfg).try(a.command("serve", "--config", file))
	}
	log.Info("serving", "node", n.ID().String(), "api", cfg.Listen.API)
	select {
	case <-ctx.Done():
		log.Info("stopping")
		return n.Close()
	case <-n.Failed():
	}
	// What was not acknowledged may be lost; what was is on a majority's disks.
	why := n.Ready()
	log.Error("this node ends: it can't go on", "error", why)
	if err := n.Close(); err != nil {
		log.Info("it did not stop in good order", "error", err)
	}
	ended := failed(exitFailed, "this node has ended: %w", why).
		because("Nothing that it acknowledged is lost, and it acknowledged nothing since. See to the disk of %s, then start it again:", cfg.Data)
	return mend(ended, why, &cfg).try(a.command("serve", "--config", file))
}

// mend says what an operator does about a disk that doesn't hold what the node wrote.
func mend(f *failure, why error, cfg *config.Config) *failure {
	if !errors.Is(why, node.ErrDamaged) {
		return f
	}
	return f.because("Put back what was there, or have the node begin anew: remove %s and start it while all the other nodes of the domain are up and ready, from whom it gets everything. Of a domain that is this node alone, \"roster snapshot restore\" then brings the last backup back:", cfg.ConsensusDir())
}

func (a *app) configCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print a node's configuration with every key explained",
		Args:  needs(),
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.stdout, config.Sample)
			return err
		},
	}
}
