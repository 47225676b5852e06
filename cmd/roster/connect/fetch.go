package connect

import (
	"crypto/x509"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

// HintPublicAddress is the hint if the guard refuses an address that is not public.
const HintPublicAddress = "Only public addresses are allowed; for tests on this machine add --insecure-loopback."

// FetchOptions limit the servers that a command may fetch from.
type FetchOptions struct {
	Loopback bool   // loopback addresses are allowed
	Bundle   string // PEM file of CA certificates that replaces the system's; empty for the system's
	// Judge returns the identity of a server's SVID; nil accepts no SVID.
	Judge func(chain []*x509.Certificate) (spiffeid.ID, error)
}

// AddFlags adds the flags to a command.
func (o *FetchOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Bundle, "source-bundle", "",
		"PEM `FILE` with the CA certificates of the server to fetch from (default: the system's)")
	cmd.Flags().BoolVar(&o.Loopback, "insecure-loopback", false, "also fetch from loopback addresses (for tests)")
}

// Guard returns the client for foreign documents: https only, public addresses only,
// without the caller's credentials. The caller closes it.
func (o *FetchOptions) Guard(console *cli.Console) (*gateway.Guard, error) {
	config := gateway.GuardConfig{Judge: o.Judge, InsecureLoopback: o.Loopback}
	if o.Loopback {
		config.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}

	if o.Bundle != "" {
		pem, err := console.ReadFile(o.Bundle, directory.MaxDocument)
		if err != nil {
			return nil, err
		}

		config.Roots = x509.NewCertPool()
		if !config.Roots.AppendCertsFromPEM(pem) {
			return nil, cli.Failed(cli.ExitFailed, "bundle %s contains no PEM certificate", o.Bundle)
		}
	}

	return gateway.NewGuard(config), nil
}
