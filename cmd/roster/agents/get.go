package agents

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/resource"
)

func getCommand(s connect.Session) *cobra.Command {
	var origin string
	var provenance bool
	var read apiclient.ReadOptions
	c := &cobra.Command{
		Use:   "get NAME|RID",
		Short: "Show one registration of any domain",
		Long: `Show one registration in full. A name is looked up in the directory's own domain first,
then in the domains of its peers. If several peers have the name, choose one with --origin.

The column BY separates facts that the directory checked from claims of the registrant.
With --provenance the table shows the way of the registration from its registrant to this
node: origin, signed page, relay and verification.`,
		Example: "  roster get weather-oslo\n  roster get translator --origin beta.test --provenance",
		Args:    cli.Args("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := s.Client()
			if err != nil {
				return err
			}
			found, err := get(c.Context(), s, client, args[0], origin, read)
			if err != nil {
				return err
			}

			t := describe(&found.Registration)
			if provenance {
				t = provenanceTable(c.Context(), s, client, &found.Registration)
			}
			return s.Print(cli.Answer{Body: found.Body, Table: t})
		},
	}
	c.Flags().StringVar(&origin, "origin", "", "`DOMAIN` that registered the agent")
	c.Flags().BoolVar(&provenance, "provenance", false, "show origin, signatures and the way to this node")
	addReadFlags(c, &read)

	return c
}

// addReadFlags adds the flags that say how fresh a response must be.
func addReadFlags(c *cobra.Command, o *apiclient.ReadOptions) {
	f := c.Flags()
	f.StringVar(&o.Consistency, "consistency", "", "`LEVEL` of consistency: default, stale (the node's own copy, however "+
		"old) or linearizable (includes every write that the domain acknowledged before)")
	f.StringArrayVar(&o.Min, "min", nil, "wait until the node has this `INDEX` of an earlier write or read, "+
		"DOMAIN=EPOCH.REVISION; may be repeated")
	f.Var(&cli.Seconds{Value: &o.Wait, Zero: -1}, "wait", "longest wait for --min in `SECONDS`, 0 to 60 (default 5)")
}

func get(
	ctx context.Context, s connect.Session, client *apiclient.Client, id, origin string, read apiclient.ReadOptions,
) (*apiclient.Resource, error) {
	path, err := resource.Locate(ctx, client, id, origin, read)
	if err != nil {
		return nil, resource.SuggestLookup(s, err, id)
	}

	found, err := client.GetFresh(ctx, path, read)
	if err != nil {
		return nil, resource.ExplainAmbiguity(s, resource.SuggestLookup(s, err, id), id)
	}

	return found, nil
}

// The values of the column BY.
const (
	byDirectory = "directory"
	byClaim     = "claimed"
)

// describe returns the members of a registration, with the facts of the directory before
// the claims of the registrant.
func describe(r *apiclient.Registration) cli.Table {
	t := cli.Table{Head: []string{"MEMBER", "BY", "VALUE"}}
	add := func(by, member, value string) {
		if value != "" {
			t.Add(member, by, value)
		}
	}

	p := r.Provenance
	add(byDirectory, "agent", r.Agent)
	add(byDirectory, "rid", r.RID())
	add(byDirectory, "origin", p.Authority)
	add(byDirectory, "registrant", p.Registrant)
	add(byDirectory, "verification", verificationState(p))
	add(byDirectory, "probe", probeResult(p.Verification.Probe))
	add(byDirectory, "kind", r.Kind)
	add(byDirectory, "visibility", p.Visibility)
	add(byDirectory, "registered", cli.FormatMillis(r.RegisteredAt))
	add(byDirectory, "updated", cli.FormatMillis(r.UpdatedAt))
	add(byDirectory, "expires", cli.FormatMillis(r.ExpiresAt))

	add(byClaim, "name", r.Name)
	add(byClaim, "description", r.Description)
	add(byClaim, "base", r.Base)
	add(byClaim, "protocols", strings.Join(r.Protocols, " "))
	add(byClaim, "status", r.Status)
	add(byClaim, "version", r.Version)
	add(byClaim, "vendor", r.Vendor)
	for _, c := range r.Capabilities {
		text := c.Name + " (" + c.Type + ")"
		if c.Description != "" {
			text += ": " + c.Description
		}
		add(byClaim, "capability", text)
	}

	if r.Redacted {
		add(byDirectory, "redacted", "some members are withheld from you")
	}

	return t
}

// verificationState returns the state of verification and the doubts about it.
func verificationState(p apiclient.Provenance) string {
	switch v := p.Verification; {
	case v.Unconfirmed:
		return v.State + ", unconfirmed: hidden from peers until its owner refreshes it"
	case v.Disputed:
		return v.State + ", disputed: there is evidence that its origin equivocated"
	default:
		return v.State
	}
}

// probeResult returns the result of comparing a registration with the agent's own
// description, if the directory did so.
func probeResult(p *apiclient.Probe) string {
	if p == nil {
		return ""
	}

	result := p.State + " at " + cli.FormatMillis(p.CheckedAt)
	switch {
	case len(p.Members) > 0:
		result += ": the agent's own description differs in " + strings.Join(p.Members, ", ")
	case p.Reason != "":
		result += ": " + p.Reason
	}

	return result
}
