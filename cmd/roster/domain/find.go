package domain

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node/dnssd"
)

// The default and the longest duration of a search.
const (
	findTimeout    = 3 * time.Second
	maxFindTimeout = time.Minute
)

// A browser searches the local network for directories until ctx ends.
type browser interface {
	Browse(ctx context.Context) (found []dnssd.Found, full bool, err error)
}

func findCommand(session *connect.Session) *cobra.Command {
	wait := findTimeout

	var interfaces []string
	cmd := &cobra.Command{
		Use:   "find",
		Short: "Find directories on the local network by DNS-SD",
		Long: `Find directories on the local network by DNS-SD: service _ad._tcp over multicast DNS. A
node answers if dns_sd.enabled is set in its configuration.

The answers are not authenticated: every host on the network can send one. Connect to a
directory only with the bundle of a domain that you trust; its certificate must be of that
domain.`,
		Args: cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			return find(c.Context(), session.Console, dnssd.Browser{Interfaces: interfaces}, wait)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", wait, "`DURATION` of the search, at most 1m")
	cmd.Flags().StringArrayVar(&interfaces, "interface", nil,
		"network `INTERFACE` to search on; may be repeated (default: all with multicast)")

	return cmd
}

// A finding is one directory that answered, as -o json prints it.
type finding struct {
	Domain        string `json:"domain"`
	URL           string `json:"url"`
	Host          string `json:"host"`
	Path          string `json:"path"`
	Instance      string `json:"instance"`
	Authenticated bool   `json:"authenticated"` // always false
}

func find(ctx context.Context, console *cli.Console, browser browser, wait time.Duration) error {
	if wait <= 0 || wait > maxFindTimeout {
		return cli.Usage("--wait must be more than 0 and at most %s, got %s", maxFindTimeout, wait)
	}

	search, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	found, full, err := browser.Browse(search)
	switch {
	// The end of the search is its regular end; only that of ctx is an interruption.
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return cli.Failed(cli.ExitFailed, "cannot search the local network: %w", err).
			WithHint("This needs a network interface with multicast and a route for it; choose one with --interface.")
	}

	if len(found) == 0 {
		console.Note("No directory answered within %s.", wait)
	} else {
		console.Note("These answers are not authenticated: every host on this network can send one. " +
			"Trust a domain's bundle, not an answer.")
	}

	if full {
		console.Note("There were too many answers, and some are left out: a host on this network may forge them. " +
			"Ask the operator of the directory for its URL.")
	}

	all := struct {
		Directories []finding `json:"directories"`
	}{[]finding{}}

	t := cli.Table{Head: []string{"DOMAIN (CLAIMED)", "URL (CLAIMED)", "HOST", "+INSTANCE", "+PATH"}}
	for _, f := range found {
		domain := f.Domain.Name()
		all.Directories = append(all.Directories, finding{
			Domain: domain, URL: f.URL, Host: f.Host, Path: f.Path, Instance: f.Instance,
		})
		t.Add(domain, f.URL, f.Host, f.Instance, f.Path)
	}

	return console.PrintValue(all, "directories", t)
}
