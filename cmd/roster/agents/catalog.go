package agents

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/probe"
)

func importCommand(session *connect.Session) *cobra.Command {
	return cli.Group("import", "Register agents from other catalogues",
		importOriginCommand(session),
		importKindCommand(session, directory.KindA2A, "Register agents from A2A agent cards",
			`The agent's name is the host and path of the card's url. For the URL of an origin, the card
at `+probe.CardPath+` is imported. A file or URL may hold one card, an array of
cards, or a registry's list: {"agents": [...]} with cards, or objects with an agent_card.`),
		importKindCommand(session, directory.KindMCP, "Register MCP servers from server.json files or a registry",
			`The agent's name is the server's name. A file or URL may hold one server.json, an array of
them, or an MCP registry's list. Of a registry's list, the latest version of each server is
imported, unless it is deleted; a note says how many documents were left out. For the URL of
a registry, such as https://registry.example/v0/servers, all pages are read.

With --tools each server is asked once, from this machine and without credentials, for its
tools. Their names and descriptions are added to the document, at
/_meta/io.modelcontextprotocol.registry~1publisher-provided/tools, so that the server is found
by its tools. A server that doesn't answer is registered all the same, with a warning.`),
		importKindCommand(session, directory.KindOASF, "Register agents from OASF records",
			`The agent's name is the record's name. A file or URL may hold one record or an array of them.
AGNTCY directories speak gRPC, which this command doesn't: pull records into files with
dirctl first.`),
	)
}

func importKindCommand(s *connect.Session, kind directory.Kind, short, details string) *cobra.Command {
	im := &importer{session: s, kind: kind}

	var lifetime cli.Lifetime
	cmd := &cobra.Command{
		Use:   string(kind) + " FILE|DIR|URL",
		Short: short,
		Long: short + `.

The source is a file, a directory with *.json files, or an https URL.
` + details + `

A registration that you own under the same name is replaced. If two documents of one import
have the same name, the first one is registered and the others are refused.

Each document is registered or refused on its own, and the table shows the reason. The
command stops early if the directory is unreachable or rejects your identity. Each
registered document gets a member "imported_from" with its source (the file, or --source)
and SHA-256.

With --dry-run nothing is registered; each document is validated and compared with the
registration of its name, and the directory says whether it would accept it.

Exit codes: 0 all documents imported, 1 some refused.`,
		Args: cli.Args("FILE|DIR|URL"),
		RunE: func(c *cobra.Command, args []string) error {
			im.options.Kind = string(kind)
			im.options.Lifetime = lifetime.Duration()

			return im.run(c.Context(), args[0])
		},
	}
	im.addFlags(cmd, &lifetime)
	flags := cmd.Flags()
	flags.StringVar(&im.origin, "source", "",
		"`SOURCE` to record in imported_from, such as the URL of a registry (default: the file's name)")

	if kind == directory.KindMCP {
		flags.BoolVar(&im.tools, "tools", false, "ask each server for its tools, and add them to its document")
	}

	if kind == directory.KindA2A {
		flags.StringArrayVar(&im.keyFiles, "card-key", nil,
			"`FILE` with public keys (JWKS, JWK or PEM) to verify signed cards with; may be repeated")
	}

	return cmd
}

func importOriginCommand(s *connect.Session) *cobra.Command {
	im := &importer{session: s, kind: directory.KindWoA}

	var lifetime cli.Lifetime
	cmd := &cobra.Command{
		Use:   "woa ORIGIN|URL",
		Short: "Register the agents of a Web of Agents origin",
		Long: `Register the agents that an origin lists in its Web of Agents document, at
` + crawl.Path + ` or at the given URL.

This program fetches all pages of the document, over https and from public addresses only.
Each agent is registered as ID@HOST with a document that lists only that agent. An agent
with credentials in its entry or other errors is refused, and the table shows the reason.

Each registration lives for about three times the time for which the origin lets the
document be cached; --lt sets another lifetime. Import again to refresh the agents. An agent
that the origin no longer lists expires, so an incomplete fetch removes nothing.

A node follows an origin: it refreshes listed agents and removes others. See "crawl" in its
configuration (roster config).

Exit codes: 0 all agents imported, 1 some refused.`,
		Args: cli.Args("ORIGIN|URL"),
		RunE: func(c *cobra.Command, args []string) error {
			im.options.Kind = string(im.kind)
			im.options.Lifetime = lifetime.Duration()

			return im.run(c.Context(), args[0])
		},
	}
	im.addFlags(cmd, &lifetime)

	return cmd
}
