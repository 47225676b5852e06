package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node/dnssd"
)

// How long roster find looks around.
const (
	findWait    = 3 * time.Second
	findLongest = time.Minute
)

// A browser looks for directories on the local network until ctx ends.
type browser interface {
	Browse(ctx context.Context) ([]dnssd.Found, error)
}

func (a *app) findCommand() *cobra.Command {
	wait := findWait
	var interfaces []string
	c := &cobra.Command{
		Use:   "find",
		Short: "Look for directories on the local network by DNS-SD",
		Long: `Look for directories on the local network: DNS-SD, service _ad._tcp over multicast
DNS. A node answers where its configuration says dns_sd.enabled.

Nothing that is found is authenticated: anybody on the network can say anything.
Use a directory only with the bundle of a domain that you trust for other reasons;
its certificate must be of that domain, whatever answered here.`,
		Args: needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.find(c.Context(), dnssd.Browser{Interfaces: interfaces}, wait)
		},
	}
	c.Flags().DurationVar(&wait, "wait", wait, "how long to wait for answers")
	c.Flags().StringArrayVar(&interfaces, "interface", nil, "the network interface to ask on; all that speak multicast if not given")
	return c
}

// A finding is one directory that has answered, as -o json prints it.
type finding struct {
	Domain        string `json:"domain"`
	URL           string `json:"url"`
	Host          string `json:"host"`
	Path          string `json:"path"`
	Instance      string `json:"instance"`
	Authenticated bool   `json:"authenticated"` // never
}

func (a *app) find(ctx context.Context, b browser, wait time.Duration) error {
	if wait <= 0 || wait > findLongest {
		return usage("--wait is %s; it is up to %s", wait, findLongest)
	}
	look, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found, err := b.Browse(look)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed(exitFailed, "nothing can be asked on the local network: %w", err).
			because("It takes a network interface that speaks multicast and a route for it; --interface names one.")
	}
	if len(found) == 0 {
		a.note("No directory has answered within %s.", wait)
	} else {
		a.note("What is found is not authenticated: anybody on this network can say this. Trust a bundle, not an answer.")
	}
	all := struct {
		Directories []finding `json:"directories"`
	}{[]finding{}}
	t := table{head: []string{"DOMAIN (CLAIMED)", "URL (CLAIMED)", "HOST", "+INSTANCE", "+PATH"}}
	for _, f := range found {
		all.Directories = append(all.Directories, finding{f.Domain.Name(), f.URL, f.Host, f.Path, f.Instance, false})
		t.rows = append(t.rows, []string{f.Domain.Name(), f.URL, f.Host, f.Instance, f.Path})
	}
	return a.printOwn(all, "directories", t)
}
