package domain

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node/config"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node/doctor"
)

func doctorCommand(session connect.Session) *cobra.Command {
	var (
		file      string
		readiness bool
	)

	cmd := &cobra.Command{
		Use:   "doctor --config FILE",
		Short: "Diagnose a node, running or not, and suggest fixes",
		Long: `Diagnose the node of a configuration on this machine, running or not, and suggest fixes.
It checks the configuration, the SVID and the bundles, ports, disk, the end of the audit
log, and the clocks of the domain's nodes and the peers. It changes nothing.

With the identity of an operator (--cert and --key) it also checks the Raft members and the
peerings, through --address or the node itself.

With --ready it checks only that the node runs and is ready, as the health check of a
container does.

Exit codes: 0 no problems (warnings are possible), 1 a check failed, 2 invalid
configuration, 6 no problems found but a check could not run, 12 the node's identity is
invalid.`,
		Example: "  roster doctor --config node.yaml --cert operator.pem --key operator.key\n" +
			"  roster doctor --config node.yaml --ready",
		Args: cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usage("missing --config FILE").
					WithHint("It names the configuration of the node on this machine.")
			}

			cfg, err := loadConfig(session, file)
			if err != nil {
				return err
			}

			if readiness {
				return reportFindings(session.Console, doctor.DiagnoseReadiness(c.Context(), cfg))
			}

			client, err := operatorClient(session, &cfg)
			if err != nil {
				return err
			}

			return reportFindings(session.Console, doctor.Diagnose(c.Context(), cfg, client))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", configHelp)
	cmd.Flags().BoolVar(&readiness, "ready", false, "check only that the node runs and is ready")

	return cmd
}

// operatorClient returns the client with the operator's identity; nil without an identity.
// Without --address it talks to the node of the configuration, not to that of the context, and
// trusts the node's own bundle.
func operatorClient(session connect.Session, cfg *config.Config) (*apiclient.Client, error) {
	if err := session.UseContext(); err != nil {
		return nil, err
	}

	hasIdentity, fromWorkloadAPI, err := session.HasIdentity()
	if err != nil || !hasIdentity {
		return nil, err
	}

	bundle := cfg.Identity.Bundle
	if fromWorkloadAPI {
		bundle = "" // the Workload API provides one
	}

	session.PinNode(cfg.OwnAddress(), cfg.TrustDomain.Name(), bundle)

	return session.Client()
}

// reportFindings prints the findings, and fails if a check failed or could not run.
func reportFindings(console *cli.Console, findings []doctor.Finding) error {
	output := struct {
		Findings []doctor.Finding `json:"findings"`
	}{findings}
	t := cli.Table{Head: []string{"STATUS", "CHECK", "FOUND", "SUGGESTION"}}
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
