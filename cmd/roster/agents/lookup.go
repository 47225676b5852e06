package agents

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/index"
)

// maxCollected bounds the registrations that lookup --all collects.
const maxCollected = 100_000

// noteNoMatch is the note on an empty result, which is not an error.
const noteNoMatch = "No agent matches."

func lookupCommand(session *connect.Session) *cobra.Command {
	var (
		options apiclient.LookupOptions
		all     bool
	)
	cmd := &cobra.Command{
		Use:   "lookup",
		Short: "Find agents in all domains by exact filters",
		Long: `Find agents in all domains by exact filters: name, capability, type, tag, protocol, domain,
status, language. An agent must match all filters and all values of a repeated one, and one
capability must match --cap, --type and --tag together. A name or capability that ends in *
is a prefix. To find agents by a description in words, use roster discover.

Columns marked CLAIMED come from the registrant and are not checked. An empty result is not
an error.`,
		Example: "  roster lookup --cap 'summ*' --protocol a2a\n  roster lookup --origin alpha.test --all -o jsonl",
		Args:    noQuery,
		RunE: func(c *cobra.Command, _ []string) error {
			// The zero value stands for the directory's default, so only Changed shows a given 0.
			if c.Flags().Changed("count") && (options.Count < 1 || options.Count > index.MaxCount) {
				return cli.Usage("--count must be 1 to %d, got %d; add --all to follow the pages",
					index.MaxCount, options.Count)
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			err = lookup(c.Context(), session.Console, client, options, all)

			return suggestPresent(err, session.CommandLine("lookup"))
		},
	}
	addFilterFlags(cmd, &options)
	f := cmd.Flags()
	f.IntVar(&options.Count, "count", 0, "maximum `NUMBER` of agents per page, 1 to 100")
	f.BoolVar(&all, "all", false, "follow the pages to the end")
	addReadFlags(cmd, &options.ReadOptions)

	return cmd
}

// noQuery accepts no arguments and points a query to the command or flag for it.
func noQuery(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	return cli.Usage("%s takes no arguments; try --agent %s, or: roster discover %s",
		cmd.Name(), cli.ShellQuote(args[0]), cli.ShellQuote(args[0]))
}

// addFilterFlags adds the filters that lookup and watch share.
func addFilterFlags(c *cobra.Command, options *apiclient.LookupOptions) {
	flags := c.Flags()
	flags.StringVar(&options.Agent, "agent", "", "`NAME` of the agent, or PREFIX*")
	flags.StringArrayVar(&options.CapName, "cap", nil, "`NAME` of a capability, or PREFIX*; may be repeated")
	flags.StringArrayVar(&options.CapType, "type", nil,
		"`TYPE` of a capability, such as tool or skill; may be repeated")
	flags.StringArrayVar(&options.Tag, "tag", nil, "`TAG` of the capability or the agent; may be repeated")
	flags.StringArrayVar(&options.Protocol, "protocol", nil, "`PROTOCOL`, exactly as registered; may be repeated")
	flags.StringVar(&options.Origin, "origin", "", "`DOMAIN` that registered the agent")
	cli.ChoiceFlag(c, &options.Scope, "scope",
		"`SCOPE`: mesh (all domains) or domain (the directory's own) (default: mesh)", "mesh", "domain")
	flags.StringArrayVar(&options.Status, "status", nil, "`STATUS` of the agent, such as active; may be repeated")
	flags.StringArrayVar(&options.Language, "language", nil,
		"`LANGUAGE` that the agent supports, exactly as registered; may be repeated")
}

func lookup(
	ctx context.Context, console *cli.Console, client *apiclient.Client, options apiclient.LookupOptions, all bool,
) error {
	page, err := client.Lookup(ctx, options)
	if err != nil {
		return err
	}

	noteWithout(console, &page.Reply)

	if len(page.Agents) == 0 {
		noteEmpty(ctx, console, client, options)
	}

	body := page.Body

	agents := page.Agents
	switch {
	case page.Next != "" && all:
		if body, agents, err = collectPages(ctx, client, page); err != nil {
			return err
		}
	case page.Next != "":
		console.Note("More agents match; add --all to follow the pages.")
	}

	return console.Print(cli.Answer{Body: body, Items: "agents", Table: agentTable(console, agents)})
}

// noteWithout notes the domains whose registrations an answer leaves out.
func noteWithout(console *cli.Console, reply *apiclient.Reply) {
	if domains := reply.Without(); domains != "" {
		console.Note("This node is short of memory and shows no registrations of %s; ask another node.", domains)
	}
}

// collectPages follows the pages after the first one and returns all as one response. The
// items are unchanged.
func collectPages(
	ctx context.Context, client *apiclient.Client, page *apiclient.Listing,
) ([]byte, []apiclient.Item, error) {
	var (
		items  [][]byte
		agents []apiclient.Item
	)
	for page != nil {
		// The items stay byte for byte, and the agents are for the table.
		more, err := cli.Elements(page.Body, "agents")
		if err != nil {
			return nil, nil, err
		}

		items = append(items, more...)
		agents = append(agents, page.Agents...)

		if len(items) > maxCollected {
			return nil, nil, cli.Failed(cli.ExitFailed, "more than %d agents match", maxCollected).
				WithHint("Add another filter, such as --origin.")
		}

		if page, err = client.Next(ctx, page); err != nil {
			return nil, nil, err
		}
	}

	body := append([]byte(`{"agents":[`), bytes.Join(items, []byte{','})...)

	return append(body, "]}\n"...), agents, nil
}

// agentColumns are the columns of agentTable.
var agentColumns = []string{
	"AGENT", "ORIGIN", "-RID", "PROTOCOLS", "BASE (CLAIMED)", "EXPIRES",
	"+STATE", "+REGISTRANT", "+CAPABILITIES (CLAIMED)", "+DESCRIPTION (CLAIMED)",
}

// longestText is how many characters of a registrant's text a table shows.
const longestText = 80

func agentTable(console *cli.Console, agents []apiclient.Item) cli.Table {
	t := cli.Table{Head: agentColumns}
	for i := range agents {
		t.Add(agentRow(&agents[i], console.Time)...)
	}

	return t
}

// flagged returns a name with the directory's doubts about it.
func flagged(name string, provenance apiclient.Provenance) string {
	if len(provenance.Flags) == 0 {
		return name
	}

	return name + " [" + strings.Join(provenance.Flags, ", ") + "]"
}

// agentRow returns the row of an agent; formatTime is for its deadline.
func agentRow(agent *apiclient.Item, formatTime func(time.Time) string) []string {
	var capabilities []string
	for _, c := range agent.Capabilities {
		capabilities = append(capabilities, c.Name)
	}

	provenance := agent.Provenance

	return []string{
		flagged(agent.Agent, provenance), provenance.Authority, agent.RID(), strings.Join(agent.Protocols, " "),
		agent.Base, formatTime(provenance.ExpiresAt), verificationState(provenance), provenance.Registrant,
		cli.Shorten(strings.Join(capabilities, " "), longestText), cli.Shorten(agent.Description, longestText),
	}
}

// noteEmpty notes why a lookup found no agent: no agent of the domain is visible at all, or the filters
// exclude all.
func noteEmpty(
	ctx context.Context, console *cli.Console, client *apiclient.Client, options apiclient.LookupOptions,
) {
	if options.Origin == "" {
		console.Note(noteNoMatch)
		return
	}

	found, err := client.Lookup(ctx, apiclient.LookupOptions{Origin: options.Origin, Count: 1})
	if err == nil && len(found.Agents) == 0 {
		console.Note("no agent of %s is visible to you", options.Origin)
		return
	}

	console.Note(noteNoMatch)
}
