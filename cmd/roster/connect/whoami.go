package connect

import (
	"crypto/x509"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/trust/credentials"
)

// A caller is the output of "roster whoami".
type caller struct {
	Identity   string    `json:"identity,omitempty"` // SPIFFE ID; may be empty
	Credential string    `json:"credential"`
	Expires    time.Time `json:"expires,omitzero"`
	Directory  string    `json:"directory,omitempty"`
	Domain     string    `json:"domain,omitempty"`
}

// WhoamiCommand returns the command that shows the caller's identity.
func WhoamiCommand(session *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity and the directory that commands talk to",
		Long: `Show the identity, its expiry and the directory that commands use, from flags, the
environment or the context. Nothing is sent to the directory.`,
		Args: cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			me, err := session.whoami()
			if err != nil {
				return err
			}

			t := cli.Table{
				Head: []string{"IDENTITY", "CREDENTIAL", "EXPIRES", "DIRECTORY", "DOMAIN"}, Record: true,
			}
			t.Add(me.Identity, me.Credential, session.Time(me.Expires), me.Directory, me.Domain)

			return session.PrintValue(me, "", t)
		},
	}
}

func (s *Session) whoami() (me caller, err error) {
	if err := s.UseContext(); err != nil {
		return me, err
	}

	me.Directory = s.Address()
	me.Domain = s.settings.value(flagDomain)

	leaf, source, err := s.clientCertificate()
	if err != nil {
		return me, err
	}

	me.Credential = source

	if leaf != nil {
		me.Expires = leaf.NotAfter.UTC()

		var ids []string
		for _, uri := range leaf.URIs {
			ids = append(ids, uri.String())
		}

		me.Identity = strings.Join(ids, " ")
	}

	return me, s.describeToken(&me)
}

// describeToken puts the identity of a token in the place of the certificate's, because it takes precedence.
func (s *Session) describeToken(me *caller) error {
	wit, file := s.settings.value(flagWIT), s.settings.value(flagTokenFile)
	credential := "token " + file

	switch {
	case wit != "" && file != "":
		return errTwoTokens()
	case wit == witOfWorkloadAPI:
		me.Credential = "workload identity token of " + me.Credential
		return nil
	case wit != "":
		file, credential = wit, "workload identity token "+wit
	case file == "":
		return nil
	}

	text, err := readToken(file)
	if err != nil {
		return cli.Failed(cli.ExitKey, "cannot use the token: %w", err)
	}

	identity, until, err := credentials.ClaimsOf(text)
	if err != nil {
		return cli.Failed(cli.ExitKey, "cannot use the token in %s: %w", file, err)
	}

	if now := time.Now(); !until.IsZero() && !now.Before(until) {
		return cli.Failed(cli.ExitKey, "the token in %s expired %s, %s ago", file, cli.FormatTime(until),
			cli.FormatAge(now.Sub(until))).WithHint("Get a new token.")
	}

	// Beside a certificate, a SPIFFE ID must be the same one.
	if strings.HasPrefix(identity, "spiffe://") && me.Identity != "" && me.Identity != identity {
		s.Note("The certificate is of %s, so the directory refuses requests with both.", me.Identity)
	}

	if me.Credential != noCredential {
		credential += " beside " + me.Credential
	}

	me.Identity, me.Credential, me.Expires = identity, credential, until.UTC()

	return nil
}

// noCredential is shown in the place of a credential that is absent.
const noCredential = "none"

// clientCertificate returns the certificate that commands present, and its source; nil if they present no certificate.
func (s *Session) clientCertificate() (leaf *x509.Certificate, source string, err error) {
	address, err := s.settings.workloadAddress()
	if err != nil {
		return nil, "", err
	}

	if address != "" {
		if err := s.identity.open(address); err != nil {
			return nil, "", err
		}

		return s.identity.source.SVID().Certificates[0], address, nil
	}

	cert, key := s.settings.value(flagCert), s.settings.value(flagKey)
	if cert == "" {
		return nil, noCredential, nil
	}

	pair, err := loadCertificate(cert, key)
	if err != nil {
		return nil, "", err
	}

	return pair.Leaf, cert, nil
}
