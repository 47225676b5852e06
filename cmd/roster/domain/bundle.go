package domain

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/trust"
)

// fingerprintRule defines a fingerprint.
const fingerprintRule = "A fingerprint is the SHA-256 of an authority's SubjectPublicKeyInfo."

func bundleCommand(session *connect.Session) *cobra.Command {
	var fingerprint bool
	cmd := &cobra.Command{
		Use:   "bundle [DOMAIN]",
		Short: "Print the trust bundle that a node holds of a domain, or its fingerprints",
		Long: `Print the SPIFFE trust bundle of DOMAIN as the directory's node holds it: a file for
--bundle. With --fingerprint, print the fingerprint of each of its authorities instead.
Without DOMAIN, list all domains of which the node holds a bundle, with fingerprints; this is
for operators and auditors.

A fingerprint is the SHA-256 of an authority's SubjectPublicKeyInfo. Compare it with the one
that the domain's own operator sees: a bundle from a directory proves nothing by itself.`,
		Example: "  roster bundle beta.test --fingerprint\n  roster bundle beta.test > beta.json",
		Args:    cli.AtMostOne("DOMAIN"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if len(args) == 0 {
				return listBundles(ctx, session, client)
			}

			return printBundle(ctx, session, client, args[0], fingerprint)
		}),
	}
	cmd.Flags().BoolVar(&fingerprint, "fingerprint", false, "print the fingerprints of the bundle's authorities")

	return cmd
}

func listBundles(ctx context.Context, session *connect.Session, client *apiclient.Client) error {
	bundles, reply, err := client.Operator().Bundles(ctx)
	if err != nil {
		return err
	}

	t := cli.Table{Head: []string{"DOMAIN", "FINGERPRINT"}}
	for _, bundle := range bundles {
		for _, print := range bundle.Fingerprints {
			t.Add(bundle.Domain, print)
		}
	}

	if session.Format.IsTable() {
		session.Note(fingerprintRule)
	}

	return session.Print(cli.Answer{Body: reply.Body, Items: "bundles", Table: t})
}

// parseDomain parses the argument DOMAIN.
func parseDomain(name string) (spiffeid.TrustDomain, error) {
	domain, err := spiffeid.TrustDomainFromString(name)

	// A SPIFFE ID parses as its trust domain, and is refused here.
	if err != nil || domain.Name() != name {
		return domain, cli.Usage("DOMAIN must be a trust domain such as beta.test, got %q", name)
	}

	return domain, nil
}

func printBundle(
	ctx context.Context, session *connect.Session, client *apiclient.Client, name string, fingerprint bool,
) error {
	domain, err := parseDomain(name)
	if err != nil {
		return err
	}

	reply, err := client.Operator().Bundle(ctx, name)
	if err != nil {
		return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("bundle"))
	}

	// The bundle is parsed even if it is only printed, so that an unusable one is refused.
	bundle, err := trust.ParseBundle(domain, reply.Body)
	if err != nil {
		return cli.Failed(cli.ExitKey, "the directory's bundle of %s is not usable: %w", name, err)
	}

	if !fingerprint {
		return session.PrintDocument(reply.Body)
	}

	list := []authority{}

	t := cli.Table{Head: []string{"DOMAIN", "FINGERPRINT", "EXPIRES", "+SUBJECT"}}
	for _, cert := range bundle.X509Authorities() {
		item := authority{name, trust.Fingerprint(cert), cli.FormatTime(cert.NotAfter), cert.Subject.String()}
		list = append(list, item)
		t.Add(item.Domain, item.Fingerprint, item.Expires, item.Subject)
	}

	if session.Format.IsTable() {
		session.Note(fingerprintRule)
	}

	return session.PrintValue(map[string]any{"authorities": list}, "authorities", t)
}

// An authority is one X.509 authority of a bundle, as -o json prints it.
type authority struct {
	Domain      string `json:"domain"`
	Fingerprint string `json:"fingerprint"`
	Expires     string `json:"expires"`
	Subject     string `json:"subject"`
}
