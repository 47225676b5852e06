package main

import (
	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "doctor --config FILE",
		Short: "Examine a node from beside it, and say what to do",
		Long: `Examine a node from beside it, on its machine, whether it runs or not: its
configuration, its SVID and the bundle that certifies it, the bundles of peers, its
ports, its disk, the end of its audit trail, and the clocks of the domain's nodes and
of peers. With the identity of an operator (--cert, --key) also how the domain's nodes
and its peers stand, by asking --address, or where it is not given the node itself.
Nothing is changed.

Exit codes: 0 nothing is wrong, though there may be warnings; 2 the configuration can't
be used; 1 something is wrong; 12 the node's identity is; 6 nothing is wrong with what
could be looked at, and something could not be.`,
		Example: "  roster doctor --config node.yaml --cert operator.pem --key operator.key",
		Args:    needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usage("no configuration is given").because("--config FILE names that of the node on this machine.")
			}
			cfg, err := config.Load(file)
			if err != nil {
				return usage("the configuration can't be used: %w", err).try(a.program + " config")
			}
			client, err := a.operatorOf(cfg)
			if err != nil {
				return err
			}
			return a.report(doctor.Diagnose(c.Context(), cfg, client))
		},
	}
	c.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	return c
}

// operatorOf returns the client that asks as the operator; nil where no identity is
// given. Without an address it asks the node itself, by the bundle that it has.
func (a *app) operatorOf(cfg config.Config) (*apiclient.Client, error) {
	if err := a.choose(); err != nil {
		return nil, err
	}
	workload, err := a.workloadAddress()
	if err != nil || workload == "" && a.setting("cert") == "" {
		return nil, err
	}
	a.fallback.Address = cfg.OwnAddress()
	if workload == "" {
		a.fallback.Bundle = cfg.Identity.Bundle
	}
	return a.client()
}

func (a *app) report(findings []doctor.Finding) error {
	body, err := marshal(struct {
		Findings []doctor.Finding `json:"findings"`
	}{findings})
	if err != nil {
		return err
	}
	t := table{head: []string{"STATUS", "CHECK", "FOUND", "WHAT TO DO"}}
	identity := false
	for _, f := range findings {
		t.rows = append(t.rows, []string{f.Status, f.Check, f.Found, f.Do})
		identity = identity || f.Check == "identity" && f.Status == doctor.StatusFailed
	}
	if err := a.print(answer{body, "findings", t}); err != nil {
		return err
	}
	switch worst := doctor.Worst(findings); {
	case identity:
		return failed(exitKey, "the node's identity does not hold")
	case worst == doctor.StatusFailed:
		return failed(exitFailed, "something is wrong with this node")
	case worst == doctor.StatusUnknown:
		return failed(exitUnavailable, "nothing is wrong with what could be looked at; something could not be")
	}
	return nil
}
