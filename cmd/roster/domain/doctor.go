package domain

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/doctor"
)

func doctorCommand(session *connect.Session) *cobra.Command {
	var (
		file      string
		readiness bool
		bundle    string
		logFile   string
	)

	cmd := &cobra.Command{
		Use:   "doctor --config FILE",
		Short: "Diagnose a node, running or not, and suggest fixes",
		Long: `Diagnose the node of a configuration on this machine, running or not, and suggest fixes.
It checks the configuration, the SVID and the bundles, ports, disk, the end of the audit
log, and the clocks of the domain's nodes and the peers. It changes nothing.

With the identity of an operator (--cert and --key) it also checks the Raft members and the
peerings, through --address or the node itself.

With --bundle it writes the findings and the state of the node to a support archive (tar.gz) for
those who help you: configuration, certificates without keys, metrics, goroutines, the end of the
audit log without names, and with an operator's identity the state of the domain. It has no
secrets; read it before you give it away. The file must not exist, and only its owner may read it.

With --ready it checks only that the node runs and is ready, as the health check of a
container does.

Exit codes of a diagnosis: 0 no problems (warnings are possible), 1 a check failed, 2 invalid
configuration, 6 no problems found but a check could not run, 12 the node's identity is
invalid.`,
		Example: "  roster doctor --config node.yaml --cert operator.pem --key operator.key\n" +
			"  roster doctor --config node.yaml --ready\n" +
			"  roster doctor --config node.yaml --bundle support.tar.gz --log node.log",
		Args: cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usage("missing --config FILE").
					WithHint("It names the configuration of the node on this machine.")
			}

			if logFile != "" && bundle == "" {
				return cli.Usage("--log needs --bundle FILE")
			}

			if bundle != "" && readiness {
				return cli.Usage("--bundle and --ready exclude each other")
			}

			cfg, err := loadConfig(session, file)
			if err != nil {
				return err
			}

			// A health check needs no operator's identity, so it comes before the client.
			if readiness {
				return reportFindings(session.Console, doctor.DiagnoseReadiness(c.Context(), cfg))
			}

			// Without an operator's identity the client is nil, and the findings that need one are unknown.
			client, err := operatorClient(session, &cfg)
			if err != nil {
				return err
			}

			if bundle != "" {
				return writeArchive(c.Context(), session.Console, bundle, cfg, client, logFile)
			}

			return reportFindings(session.Console, doctor.Diagnose(c.Context(), cfg, client))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", configHelp)
	cmd.Flags().BoolVar(&readiness, "ready", false, "check only that the node runs and is ready")
	cmd.Flags().StringVar(&bundle, "bundle", "", "write a support archive without secrets to `FILE`, tar.gz")
	cmd.Flags().StringVar(&logFile, "log", "", "with --bundle: `FILE` with the node's log, of which the end is added")

	return cmd
}

// writeArchive writes a support archive to a new file, as a whole or not at all, and prints its parts.
func writeArchive(
	ctx context.Context, console *cli.Console, path string, cfg config.Config, operator *apiclient.Client,
	logFile string,
) error {
	const never = "A support archive never overwrites a file; choose another name."

	var parts []doctor.Part

	err := writeNew(path, "support archive", never, func(file io.Writer) (err error) {
		parts, err = doctor.WriteArchive(ctx, file, cfg, operator, logFile)
		return err
	})
	if err != nil {
		return err
	}

	t := cli.Table{Head: []string{"FILE", "BYTES", "CONTENT", "MISSING OR INCOMPLETE"}}
	for _, part := range parts {
		t.Add(part.Name, strconv.Itoa(part.Bytes), part.Content, part.Problem)
	}

	console.Note("wrote %s; read it before you give it away", path)

	return console.PrintValue(struct {
		File  string        `json:"file"`
		Parts []doctor.Part `json:"parts"`
	}{path, parts}, "parts", t)
}

// operatorClient returns the client with the operator's identity; nil without an identity.
// Without --address it talks to the node of the configuration, not to that of the context, and
// trusts the node's own bundle.
func operatorClient(session *connect.Session, cfg *config.Config) (*apiclient.Client, error) {
	if err := session.UseContextOf(cfg.TrustDomain.Name()); err != nil {
		return nil, err
	}

	hasIdentity, fromWorkloadAPI, err := session.HasIdentity()
	if err != nil || !hasIdentity {
		return nil, err
	}

	bundle := cfg.Identity.Bundle
	if fromWorkloadAPI {
		// The Workload API provides a bundle, which is renewed.
		bundle = ""
	}

	session.PinNode(cfg.OwnAddress(), cfg.TrustDomain.Name(), bundle)

	return session.Client()
}

// verdictOf sums findings up.
func verdictOf(findings []doctor.Finding) doctor.Finding {
	counts := map[string]int{}
	for _, finding := range findings {
		counts[finding.Status]++
	}

	verdict := doctor.Finding{Check: "verdict", Status: doctor.Worst(findings)}
	if verdict.Status == doctor.StatusOK {
		verdict.Found = fmt.Sprintf("%d of %d checks are ok", len(findings), len(findings))
		return verdict
	}

	verdict.Found = fmt.Sprintf("of %d checks %d failed, %d could not run and %d warn", len(findings),
		counts[doctor.StatusFailed], counts[doctor.StatusUnknown], counts[doctor.StatusWarning])

	return verdict
}

// reportFindings prints a verdict and the findings, and fails if a check failed or could not run.
func reportFindings(console *cli.Console, findings []doctor.Finding) error {
	verdict := verdictOf(findings)
	output := struct {
		Verdict  doctor.Finding   `json:"verdict"`
		Findings []doctor.Finding `json:"findings"`
	}{verdict, findings}
	t := cli.Table{Head: []string{"STATUS", "CHECK", "FOUND", "SUGGESTION"}}
	t.Add(verdict.Status, verdict.Check, verdict.Found, verdict.Do)

	invalidIdentity := false
	failed := 0

	unknown := 0
	for _, finding := range findings {
		t.Add(finding.Status, finding.Check, finding.Found, finding.Do)

		switch finding.Status {
		case doctor.StatusFailed:
			failed++
			invalidIdentity = invalidIdentity || finding.Check == "identity"
		case doctor.StatusUnknown:
			unknown++
		}
	}

	if err := console.PrintValue(output, "findings", t); err != nil {
		return err
	}

	switch {
	// An invalid identity has an exit code of its own, whatever else failed.
	case invalidIdentity:
		return cli.Failed(cli.ExitKey, "the node's identity is invalid")
	case failed > 0:
		return cli.Failed(cli.ExitFailed, "checks failed: %d of %d", failed, len(findings))
	case unknown > 0:
		return cli.Failed(cli.ExitUnavailable, "no problems found; checks that could not run: %d of %d", unknown,
			len(findings))
	}

	return nil
}
