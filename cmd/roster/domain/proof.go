package domain

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

// proofHeader is the name of the header field that has an operator's proof.
const proofHeader = "Roster-Operator-Proof"

func proofCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "proof METHOD URL [FILE]",
		Short: "Print the proof of an operator's request for curl",
		Long: `Print the header field Roster-Operator-Proof for one change under /v1/operator, or for a forced
transfer. The proof is signed with --key, for the method, the URL with its query, and the body
in FILE ("-" is standard input; without FILE the body is empty). It is valid once, for 30 seconds.

The commands of this program send a proof by themselves.`,
		Example: `  curl --cert op.pem --key op.key --cacert ca.pem -X PUT --data-binary @policy.json \
    -H 'Content-Type: application/json' \
    -H "$(roster proof PUT https://n1:8400/v1/operator/policy policy.json)" \
    https://n1:8400/v1/operator/policy`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}

			return cli.Args("METHOD", "URL")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			method, url := strings.ToUpper(args[0]), args[1]
			if !strings.HasPrefix(url, "https://") || directory.HasUserinfo(url) {
				return cli.Usage("URL must begin with https://HOST, got %q", url)
			}

			var body io.Reader = strings.NewReader("")

			if len(args) == 3 {
				file, err := openBody(cmd, args[2])
				if err != nil {
					return err
				}
				defer file.Close()

				body = file
			}

			// The body may be a whole backup, so it is hashed while it is read.
			hash := sha256.New()
			if _, err := io.Copy(hash, body); err != nil {
				return cli.Failed(cli.ExitFailed, "cannot read the body: %w", err)
			}

			certificate, err := session.ClientCertificate()
			if err != nil {
				return err
			}

			text, err := apiclient.ProveOperator(certificate, method, url, [sha256.Size]byte(hash.Sum(nil)))
			if err != nil {
				return cli.Failed(cli.ExitKey, "cannot prove the request: %w", err)
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", proofHeader, text)

			return err
		},
	}
}

func openBody(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}

	file, err := os.Open(name)
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the body: %w", err)
	}

	return file, nil
}
