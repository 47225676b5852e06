package local

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/durable"
)

// DefaultDir is the directory of an authority without --dir.
const DefaultDir = "ca"

// authorityCommand returns the command that manages a certificate authority.
func authorityCommand(session *connect.Session) *cobra.Command {
	ca := cli.Group("ca", "Issue X.509-SVIDs without SPIRE, from a key in a file",
		initCommand(session),
		issueCommand(session),
		renewCommand(session),
		bundleCommand(session),
	)
	ca.Long = `Issue X.509-SVIDs without SPIRE, from a key in a file.

The holder of ca.key can impersonate every identity of the domain. Keep it on a machine of its
own, and copy only certificates and their keys to the nodes. SVIDs are short-lived: run "roster
ca renew" from a timer. Nodes and commands use renewed files at once.

A domain with many workloads uses SPIRE, which attests each workload and renews its SVID
without files: see docs/guides/spire.md.`

	return ca
}

// addDir adds the flag with the authority's directory.
func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", DefaultDir, "`DIRECTORY` of the certificate authority")
}

// open opens an authority for a command.
func open(session *connect.Session, dir string) (*Store, error) {
	store, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Failed(cli.ExitNotFound, "%s has no certificate authority", dir).
			WithHint("Create one, or name its directory with --dir:").
			WithNext(session.Program + " ca init TRUST_DOMAIN")
	}

	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot open the certificate authority: %w", err)
	}

	return store, nil
}

func initCommand(session *connect.Session) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "init TRUST_DOMAIN",
		Short: "Create a certificate authority",
		Long: `Create a certificate authority for a trust domain. Its certificate is valid for ten years.
Nothing is overwritten.`,
		Example: "  roster ca init alpha.test",
		Args:    cli.Args("TRUST_DOMAIN"),
		RunE: func(_ *cobra.Command, args []string) error {
			td, err := spiffeid.TrustDomainFromString(args[0])

			// A SPIFFE ID parses as its trust domain, and is refused here.
			if err != nil || strings.Contains(args[0], "/") {
				return cli.Usage("invalid trust domain %q: lower-case letters, digits, dots, dashes and underscores",
					args[0])
			}

			store, err := Create(dir, td)
			if err != nil {
				return cli.Failed(cli.ExitConflict, "cannot create the certificate authority: %w", err)
			}
			defer store.Close()

			session.Note("%s is the authority's private key: keep it off the nodes, and keep a copy offline.",
				store.path(authorityKeyFile))
			session.Note("Next, configure the nodes: %s init --ca %s --members NAME=ADDRESS,...",
				session.Program, cli.ShellQuote(dir))

			t := cli.Table{Head: []string{"TRUST DOMAIN", "CERT", "KEY"}}
			t.Add(td.Name(), store.path(authorityCertFile), store.path(authorityKeyFile))

			return session.PrintValue(struct {
				TrustDomain string `json:"trust_domain"`
				Cert        string `json:"cert"`
				Key         string `json:"key"`
			}{td.Name(), store.path(authorityCertFile), store.path(authorityKeyFile)}, "", t)
		},
	}
	addDir(cmd, &dir)

	return cmd
}

func issueCommand(session *connect.Session) *cobra.Command {
	var (
		dir, out string
		request  Request
	)

	cmd := &cobra.Command{
		Use:   "issue PATH",
		Short: "Issue an X.509-SVID",
		Long: `Issue an X.509-SVID for a path of the trust domain: a private key and a certificate, which
"roster ca renew" renews. The shipped policy gives roles by path: /ops/* operate the
directory, /audit/* read the audit log, and other paths register agents. Nodes have paths
below /roster/node/. The leading slash may be left out.

Files are not overwritten. --force replaces an SVID of the same identity and its private key.`,
		Example: "  roster ca issue /agent/weather --out weather\n" +
			"  roster ca issue /roster/node/d --host 10.0.0.4 --out d/node",
		Args: cli.Args("PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			if request.Lifetime < time.Minute || request.Lifetime > maxLifetime {
				return cli.Usage("--lifetime must be 1m to %s, got %s", maxLifetime, request.Lifetime)
			}

			store, err := open(session, dir)
			if err != nil {
				return err
			}
			defer store.Close()

			id, err := store.ID(args[0])
			if err != nil {
				return cli.Usage("invalid PATH %q: %w", args[0], err)
			}

			out = cmp.Or(out, strings.ReplaceAll(strings.Trim(id.Path(), "/"), "/", "-"))

			request.Path, request.Cert, request.Key = id.Path(), out+".pem", out+".key"

			identity, err := store.Issue(request)
			if err != nil {
				return issueFailure(err)
			}

			noteSize(session, store)

			return printIdentities(session, []Identity{identity}, "")
		},
	}
	flags := cmd.Flags()
	addDir(cmd, &dir)
	flags.StringVar(&out, "out", "", "write `FILE`.pem and FILE.key (default: the path's words)")
	flags.StringSliceVar(&request.Hosts, "host", nil,
		"`HOST`, DNS name or IP address, to put into the certificate; several, with commas")
	flags.BoolVar(&request.Replace, "force", false, "replace an SVID of the same identity in these files")
	flags.DurationVar(&request.Lifetime, "lifetime", DefaultLifetime, "`DURATION` until the SVID expires")

	return cmd
}

// issueFailure is the failure to issue an SVID.
func issueFailure(err error) error {
	var exists *existsError
	if !errors.As(err, &exists) {
		return cli.Failed(cli.ExitFailed, "cannot issue the SVID: %w", err)
	}

	failure := cli.Failed(cli.ExitConflict, "cannot issue the SVID: %w", err)
	if exists.sameID {
		return failure.WithHint("\"roster ca renew\" renews it, and --force replaces it with a new private key. " +
			"Other files are chosen with --out.")
	}

	return failure.WithHint("Nothing is overwritten; choose other files with --out.")
}

func renewCommand(session *connect.Session) *cobra.Command {
	var (
		dir        string
		everything bool
	)

	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Renew the SVIDs that are due",
		Long: `Renew the SVIDs that this authority issued and that have less than half of their lifetime
left, each in its files and with a new private key. Run it from a timer, at least as often
as a quarter of the shortest lifetime. Files that were removed are not written again. An SVID
that can't be renewed stops no other; the command then renews the rest, names it and fails.`,
		Example: "  roster ca renew",
		Args:    cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			store, err := open(session, dir)
			if err != nil {
				return err
			}
			defer store.Close()

			renewed, failed, err := store.Renew(everything)
			if err != nil {
				return cli.Failed(cli.ExitFailed, "cannot keep the list of SVIDs: %w", err)
			}

			if len(renewed)+len(failed) == 0 {
				session.Note("No SVID is due.")
			}

			noteSize(session, store)

			return errors.Join(printIdentities(session, renewed, "identities"), renewalFailure(failed))
		},
	}
	addDir(cmd, &dir)
	cmd.Flags().BoolVar(&everything, "all", false, "renew SVIDs that are not due, too")

	return cmd
}

// renewalFailure is the failure of the SVIDs that could not be renewed; nil without any.
func renewalFailure(failed []error) error {
	if len(failed) == 0 {
		return nil
	}

	var texts []string
	for _, err := range failed {
		texts = append(texts, err.Error())
	}

	return cli.Failed(cli.ExitFailed, "cannot renew %d of the SVIDs: %s", len(failed), strings.Join(texts, "; ")).
		WithHint("The others were renewed if they were due. Repair these files; the SVID of a removed certificate is " +
			"forgotten.")
}

func bundleCommand(session *connect.Session) *cobra.Command {
	var dir, out string

	cmd := &cobra.Command{
		Use:     "bundle",
		Short:   "Print the authority's trust bundle, PEM",
		Example: "  roster ca bundle > bundle.pem\n  roster ca bundle --out bundle.pem",
		Args:    cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			// Only the certificate is read, so that the key need not be readable, nor the authority's lock free.
			bundle, err := os.ReadFile(filepath.Join(dir, authorityCertFile))
			if err != nil {
				return cli.Failed(cli.ExitNotFound, "cannot read the trust bundle: %w", err)
			}

			if out != "" {
				return durable.WriteFile(out, bundle, 0o644)
			}

			_, err = session.Stdout.Write(bundle)

			return err
		},
	}
	addDir(cmd, &dir)
	cmd.Flags().StringVar(&out, "out", "", "write `FILE` (default: standard output)")

	return cmd
}

// noteSize notes that a domain has outgrown this authority.
func noteSize(session *connect.Session, store *Store) {
	if store.Outgrown() {
		session.Note("This authority has issued %d identities. SPIRE attests each workload and needs no files: "+
			"see docs/guides/spire.md.", len(store.issued))
	}
}

// printIdentities prints identities. Items is the member of the JSON that has them; without one
// there is a single identity.
func printIdentities(session *connect.Session, identities []Identity, items string) error {
	t := cli.Table{Head: []string{"SPIFFE ID", "CERT", "KEY", "EXPIRES"}}
	for _, identity := range identities {
		t.Add(identity.SPIFFEID, identity.Cert, identity.Key, identity.Expires)
	}

	if items == "" {
		return session.PrintValue(identities[0], "", t)
	}

	return session.PrintValue(struct {
		Identities []Identity `json:"identities"`
	}{append([]Identity{}, identities...)}, items, t)
}
