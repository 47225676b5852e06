package connect

import (
	"crypto/x509"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
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

	switch {
	case s.settings.value(flagWIT) != "":
		me.Credential = "workload identity token " + s.settings.value(flagWIT)
	case s.settings.value(flagTokenFile) != "":
		me.Credential = "token " + s.settings.value(flagTokenFile)
	}

	return me, nil
}

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
		return nil, "none", nil
	}

	pair, err := loadCertificate(cert, key)
	if err != nil {
		return nil, "", err
	}

	return pair.Leaf, cert, nil
}
