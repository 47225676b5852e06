package main

import (
	"bytes"
	"context"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/index"
)

// maxAll bounds what lookup --all collects.
const maxAll = 100_000

func (a *app) lookupCommand() *cobra.Command {
	var o apiclient.LookupOptions
	var all bool
	c := &cobra.Command{
		Use:   "lookup",
		Short: "Find agents of the whole mesh by name, capability, type, tag, protocol",
		Long: `Find agents. All filters must match; --cap, --type and --tag must match on one
capability. A name or capability that ends in * is a prefix.

What registrants say of themselves, such as BASE, is claimed, not checked. An
answer without agents is no error.`,
		Example: "  roster lookup --cap 'summ*' --protocol a2a\n  roster lookup --origin alpha.test --all -o jsonl",
		Args:    needs(),
		RunE:    func(c *cobra.Command, _ []string) error { return a.lookup(c.Context(), o, all) },
	}
	filterFlags(c, &o)
	f := c.Flags()
	f.IntVar(&o.Count, "count", 0, "how many at most in one answer, 1 to 100")
	f.BoolVar(&all, "all", false, "follow the pages to the end")
	readFlags(c, &o.ReadOptions)
	return c
}

// filterFlags are the filters that lookup and watch share.
func filterFlags(c *cobra.Command, o *apiclient.LookupOptions) {
	f := c.Flags()
	f.StringVar(&o.Agent, "agent", "", "agent name, or prefix with * at its end")
	f.StringArrayVar(&o.CapName, "cap", nil, "capability name, or prefix with * at its end")
	f.StringArrayVar(&o.CapType, "type", nil, "capability type, such as tool or skill")
	f.StringArrayVar(&o.Tag, "tag", nil, "tag of the capability or of the agent")
	f.StringArrayVar(&o.Protocol, "protocol", nil, "protocol, exactly as registered")
	f.StringVar(&o.Origin, "origin", "", "the domain that registered it")
	f.StringVar(&o.Scope, "scope", "", "mesh (all domains, the default) or domain (the directory's own)")
	f.StringArrayVar(&o.Status, "status", nil, "status, such as active")
}

func (a *app) lookup(ctx context.Context, o apiclient.LookupOptions, all bool) error {
	if o.Count < 0 || o.Count > index.MaxCount {
		return usage("--count is %d; it is 1 to %d, and --all follows the pages", o.Count, index.MaxCount)
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	page, err := client.Lookup(ctx, o)
	if err != nil {
		return err
	}
	if len(page.Agents) == 0 {
		a.note("No agent matches.")
	}
	body, agents := page.Body, page.Agents
	switch {
	case page.Next != "" && all:
		if body, agents, err = a.collect(ctx, client, page); err != nil {
			return err
		}
	case page.Next != "":
		a.note("There are more: --all follows the pages.")
	}
	return a.print(answer{body, "agents", listing(agents)})
}

// collect follows the pages behind one and returns them as one answer, the items
// as they came.
func (a *app) collect(ctx context.Context, client *apiclient.Client, page *apiclient.Listing) ([]byte, []apiclient.Item, error) {
	var items [][]byte
	var agents []apiclient.Item
	for page != nil {
		more, err := elements(page.Body, "agents")
		if err != nil {
			return nil, nil, err
		}
		items, agents = append(items, more...), append(agents, page.Agents...)
		if len(items) > maxAll {
			return nil, nil, failed(exitFailed, "more than %d agents match", maxAll).because("Narrow the lookup with another filter, such as --origin.")
		}
		if page, err = client.Next(ctx, page); err != nil {
			return nil, nil, err
		}
	}
	return append(append([]byte(`{"agents":[`), bytes.Join(items, []byte{','})...), "]}\n"...), agents, nil
}

func listing(agents []apiclient.Item) table {
	t := table{head: []string{"AGENT", "ORIGIN", "RID", "PROTOCOLS", "BASE (CLAIMED)", "EXPIRES", "+STATE", "+REGISTRANT", "+CAPABILITIES (CLAIMED)", "+DESCRIPTION (CLAIMED)"}}
	for _, r := range agents {
		var caps []string
		for _, c := range r.Capabilities {
			caps = append(caps, c.Name)
		}
		p := r.Provenance
		t.rows = append(t.rows, []string{
			r.Agent, p.Authority, r.RID(), strings.Join(r.Protocols, " "), r.Base, instant(p.ExpiresAt),
			standing(p), p.Registrant, shorten(strings.Join(caps, " "), 80), shorten(r.Description, 80),
		})
	}
	return t
}
