package domain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/doctor"
	"github.com/roster-mesh/roster/node/memory"
	"github.com/roster-mesh/roster/node/port"
)

// configHelp describes the flag --config.
const configHelp = "configuration `FILE` of the node, YAML (required)"

func serveCommand(session *connect.Session) *cobra.Command {
	var (
		file     string
		validate bool
		without  []string
	)

	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run one node of a domain",
		Long: `Run one node of a domain with the given configuration; "roster config" prints a documented
sample. Logs go to standard error: as text on a terminal and as JSON elsewhere (log.format).

SIGINT and SIGTERM stop the node gracefully: it is not ready from then on, serves for the
configured time (drain), completes running requests and hands over leadership. A second
signal stops it at once.

SIGHUP reads the configuration again. The keys that "roster config" marks as reloadable are
applied together, and the log names them and the changed keys that need a restart. If the
file has an error, the log names it and nothing changes. --validate checks a file before.

Nodes without data begin the domain once every listed node has answered and none has data. If the
disk of one is lost, or was never there, start the others with --begin-without and its address. A
node with data of another beginning is refused from then on.

The memory limit is 90% of the cgroup's limit and at most 75% of the machine's memory; set
GOMEMLIMIT to change it.`,
		Example: "  roster serve --config node.yaml\n  roster serve --validate --config node.yaml",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usage("missing --config FILE").
					WithHint("It names the node's configuration; print a documented sample:").
					WithNext(session.Program + " config")
			}

			if validate {
				return validateConfig(session, file)
			}

			return serve(c.Context(), session, file, without)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", configHelp)
	cmd.Flags().BoolVar(&validate, "validate", false, "check the configuration and end; \"roster doctor\" checks more")

	cmd.Flags().StringArrayVar(&without, "begin-without", nil, "`ADDRESS` in members or join of a node whose disk is "+
		"lost: begin the domain without asking there; may be repeated")

	return cmd
}

func configCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "config",
		Short:   "Print a documented sample configuration for a node",
		Example: "  roster config > node.yaml",
		Args:    cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(session.Stdout, config.Sample)
			return err
		},
	}
}

// loadConfig reads and validates a node's configuration. Several errors have a line each.
func loadConfig(session *connect.Session, file string) (config.Config, error) {
	loaded, err := config.Load(file)

	var all *config.Errors
	if errors.As(err, &all) && len(all.List) > 1 {
		for _, line := range all.Lines() {
			session.Note("%s", line)
		}

		err = fmt.Errorf("%d errors in %s", len(all.List)+all.More, file)
	}

	if err != nil {
		return loaded, cli.Usage("invalid configuration: %w", err).WithNext(session.Program + " config")
	}

	return loaded, nil
}

// validateConfig checks a configuration without starting anything.
func validateConfig(session *connect.Session, file string) error {
	cfg, err := loadConfig(session, file)
	if err != nil {
		return err
	}

	session.Note("%s is valid: a node of %s, members: %d. To check the files, ports and clocks that it names:",
		file, cfg.TrustDomain.Name(), len(cfg.Members))
	session.Note("  %s", session.CommandLine("doctor", "--config", file))

	return nil
}

// setDefaultLogger has libraries write their lines to a logger. The level of the standard logger is debug, because
// other nodes can have net/http write lines to it at will.
func setDefaultLogger(log *slog.Logger) {
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(log)
}

// serve runs a node until ctx ends or the node fails.
func serve(ctx context.Context, session *connect.Session, file string, without []string) error {
	cfg, err := loadConfig(session, file)
	if err != nil {
		return err
	}

	if err := checkWithout(&cfg, without); err != nil {
		return err
	}

	restart := session.CommandLine("serve", "--config", file)

	// SIGHUP is taken before the start, so that a reload meanwhile doesn't end the process.
	hangups := cli.Hangups(ctx)

	var level slog.LevelVar
	level.Set(cfg.Log.MinLevel())

	lines := cfg.Log
	if lines.Format == config.LogAuto && session.ErrIsTerminal() {
		lines.Format = "text"
	}

	log := lines.Logger(session.Stderr, &level)
	setDefaultLogger(log)

	defer memory.Govern(log)()

	// A development mesh has its CA on the same machine.
	if cfg.Policy != "development" {
		for _, path := range doctor.AuthorityKeys(&cfg) {
			log.Warn("the private key of the domain's CA is on this machine; move it to one that runs no node",
				"path", path)
		}
	}

	n, err := node.Start(cfg, node.Env{Logger: log, Level: &level, Context: ctx, BeginWithout: without})

	// A signal during the start is no failure.
	if err != nil && ctx.Err() != nil {
		log.Info("stopped during start", "err", err)
		return nil
	}

	if err != nil {
		failure := cli.Failed(cli.ExitFailed, "cannot start the node: %w", err)

		if taken, ok := errors.AsType[*port.InUseError](err); ok {
			return failure.WithHint("End the process that listens there, or give another address as %s in %s.",
				taken.Key, file)
		}

		return addRecoveryHint(failure.WithNext(session.CommandLine("doctor", "--config", file)), err, &cfg)
	}

	stopping := supervise(n, log)
	log.Info("serving", "node", n.ID().String(), "api", cfg.Listen.API)

	for failed := false; !failed; {
		select {
		case <-ctx.Done():
			// systemd is notified first, because the drain takes its time.
			stopping()
			n.Drain()

			return n.Close()
		case <-hangups:
			reload(n, file, log)
		case <-n.Failed():
			failed = true
		}
	}

	stopping()

	// The cause is read before Close, after which the node is not ready for another reason.
	cause := n.Ready()
	if err := n.Close(); err != nil {
		// A disk that fails makes the stop fail, too, so only the first cause is reported.
		log.Debug("stop was not graceful", "err", err)
	}

	// An unacknowledged write may be lost. Acknowledged writes are on a majority's disks.
	failure := cli.Failed(cli.ExitFailed, "the node failed: %w", cause).
		WithHint("No acknowledged write is lost. Repair the disk of %s, then start the node again:", cfg.Data).
		WithNext(restart)

	return addRecoveryHint(failure, cause, &cfg)
}

// checkWithout refuses addresses that the configuration doesn't list.
func checkWithout(cfg *config.Config, without []string) error {
	listed := slices.Clone(cfg.Join)
	for _, m := range cfg.Members {
		listed = append(listed, m.Cluster)
	}

	for _, address := range without {
		if !slices.Contains(listed, address) {
			return cli.Usage("--begin-without %q is no address in members or join", address).
				WithHint("Listed are: %s", strings.Join(listed, ", "))
		}
	}

	return nil
}

// reload reads the configuration again. A file with an error changes nothing.
func reload(n *node.Node, file string, log *slog.Logger) {
	next, err := config.Load(file)
	if err != nil {
		log.Error("configuration not reloaded; nothing was changed", "err", err)
		return
	}

	n.Reload(&next)
}

// addRecoveryHint replaces the hint if the cause is damaged data on the node's disk, or another history
// of the domain.
func addRecoveryHint(failure *cli.Failure, cause error, cfg *config.Config) *cli.Failure {
	if errors.Is(cause, node.ErrOtherHistory) {
		return failure.WithHint("Nothing was changed on either side. If this node's data is to be kept, save it with "+
			"\"roster snapshot salvage\". Then remove %s and start the node again; it takes over the history of the "+
			"others once an operator has let it in with \"roster raft remove ID\" and \"roster raft admit ID\" "+
			"(docs/runbooks.md#two-histories):", cfg.ConsensusDir())
	}

	// The same log makes the same state again, so a repaired disk alone doesn't help.
	if errors.Is(cause, node.ErrOtherState) {
		return failure.WithHint("Save a backup of the domain at another node. If this node runs another release "+
			"than the others, install theirs. Then remove %s and start the node again while all other nodes of the "+
			"domain are ready, and let it in with \"roster raft remove ID\" and \"roster raft admit ID\"; it copies "+
			"the data from them (docs/runbooks.md#another-state):", cfg.ConsensusDir())
	}

	if entry, ok := errors.AsType[*node.EntryError](cause); ok {
		return failure.WithHint("If a newer release wrote the entry, start that one. Otherwise the key of a "+
			"member may be stolen, or the release has a defect (docs/runbooks.md#rostermembermisconduct). Cut the "+
			"log before the entry by \"roster snapshot salvage FILE --before %d\" with the configuration of the "+
			"stopped node that has the longest log, and restore that backup.", entry.Entry)
	}

	if !errors.Is(cause, node.ErrDamaged) {
		return failure
	}

	return failure.WithHint("Restore the damaged files, or remove %s and start the node again while all other "+
		"nodes of the domain are ready, and let it in with \"roster raft remove ID\" and \"roster raft admit ID\"; it "+
		"copies the data from them. In a domain of one node, then restore the last backup with \"roster snapshot "+
		"restore\":", cfg.ConsensusDir())
}
