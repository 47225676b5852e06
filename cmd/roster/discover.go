package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// diversified is the warning that candidates are not in the order of their scores
// (discovery.WarnDiversified).
const diversified = "diversified"

// maxDiscovered is the most candidates that a directory ranks for one question.
const maxDiscovered = 100

func (a *app) discoverCommand() *cobra.Command {
	var o apiclient.DiscoverOptions
	var resolve bool
	c := &cobra.Command{
		Use:   "discover QUERY",
		Short: "Find agents by what they can do, the best first",
		Long: `Find agents by what they can do, in words. The best come first; the score is the
directory's own and compares with no other's.

--evidence tells what of an agent matches. --resolve asks how the agents are to be
invoked: it takes --tag as a preference, as --prefer. After three agents of one owner,
those of other owners that match about as well come first; --by-score orders by score
alone. What agents say of themselves, such as their endpoint, is claimed, not checked.`,
		Example: "  roster discover 'translate a contract into French' --protocol a2a\n  roster discover 'check an invoice' --resolve -o json",
		Args:    needs("QUERY"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Query = args[0]
			return a.discover(c.Context(), o, resolve)
		},
	}
	requestFlags(c, &o)
	f := c.Flags()
	f.StringVar(&o.Detail, "detail", "", "minimal, summary (the default) or full: how much the answer has of each")
	f.BoolVar(&o.Evidence, "evidence", false, "tell what of each agent matches")
	f.BoolVar(&resolve, "resolve", false, "tell how to invoke each agent")
	readFlags(c, &o.ReadOptions)
	return c
}

// requestFlags are the parts of a request that discover and explain share.
func requestFlags(c *cobra.Command, o *apiclient.DiscoverOptions) {
	f := c.Flags()
	f.StringArrayVar(&o.Tags, "tag", nil, "tag that the agent must have")
	f.StringArrayVar(&o.Preferred, "prefer", nil, "tag that raises an agent")
	f.StringArrayVar(&o.Excluded, "exclude", nil, "tag that the agent must not have")
	f.StringArrayVar(&o.Protocols, "protocol", nil, "acceptable protocol, exactly as registered")
	f.StringArrayVar(&o.Origins, "origin", nil, "acceptable domain that registered it")
	f.StringArrayVar(&o.Owners, "owner", nil, "identity that owns the agent")
	f.BoolVar(&o.Plain, "by-score", false, "order by score alone, whoever owns the agents")
	f.StringArrayVar(&o.Regions, "region", nil, "acceptable region, as the agent's own constraints name it")
	f.StringVar(&o.Verification, "min-verification", "", "how sure it must be where the agent comes from: pending, verified, logged or witnessed")
	f.Var(&seconds{of: &o.MaxAge}, "max-age", "at most so many seconds since it was registered or refreshed")
	f.IntVar(&o.Limit, "limit", 0, "how many at most, 1 to 100 (default 10)")
}

// check refuses what no directory would take.
func check(o apiclient.DiscoverOptions) error {
	switch {
	case strings.TrimSpace(o.Query) == "":
		return usage("QUERY is empty: say in words what the agent shall do")
	case o.Limit < 0 || o.Limit > maxDiscovered:
		return usage("--limit is %d; it is 1 to %d", o.Limit, maxDiscovered)
	}
	return nil
}

func (a *app) discover(ctx context.Context, o apiclient.DiscoverOptions, resolve bool) error {
	if err := check(o); err != nil {
		return err
	}
	if resolve && o.Detail != "" {
		return usage("--detail does not go with --resolve").because("A resolution has one detail: what it takes to invoke an agent.")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if resolve {
		return a.resolve(ctx, client, o)
	}
	found, err := client.Discover(ctx, o)
	if err != nil {
		return err
	}
	if len(found.Candidates) == 0 {
		a.note("No agent matches.")
	}
	if len(found.Unsupported) > 0 {
		a.note("The directory could not apply %s.", strings.Join(found.Unsupported, ", "))
	}
	a.warn(found.Warnings)
	return a.print(answer{found.Body, "candidates", candidates(found.Candidates, o.Evidence)})
}

func (a *app) resolve(ctx context.Context, client *apiclient.Client, o apiclient.DiscoverOptions) error {
	found, err := client.Resolve(ctx, o)
	if err != nil {
		return err
	}
	if len(found.Candidates) == 0 {
		a.note("No agent matches.")
	}
	for _, reason := range slices.Sorted(maps.Keys(found.Excluded)) {
		a.note("%d left out: %s", found.Excluded[reason], reason)
	}
	a.warn(found.Warnings)
	return a.print(answer{found.Body, "candidates", resolved(found.Candidates)})
}

func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		if w == diversified {
			a.note("Agents of other owners come before further ones of an owner who has three; --by-score orders by score.")
			continue
		}
		a.note("The directory warns: %s", w)
	}
}

func candidates(all []apiclient.Candidate, evidence bool) table {
	t := table{head: []string{"SCORE", "ID", "NAME (CLAIMED)", "ORIGIN", "PROTOCOL", "ENDPOINT (CLAIMED)", "MATCHED TAGS", "+STATE", "+EXPIRES", "+FLAGS", "+DESCRIPTION (CLAIMED)"}}
	if evidence {
		t.head = append(t.head, "WHY")
	}
	for _, c := range all {
		var way apiclient.Binding
		if len(c.Bindings) > 0 {
			way = c.Bindings[0]
		}
		p := c.Provenance
		row := []string{
			score(c.Score), c.ID, shorten(c.Name, 40), p.Authority, way.Protocol, way.Endpoint, strings.Join(c.MatchedTags, " "),
			p.Verification.State, instant(p.ExpiresAt), strings.Join(c.Flags, " "), shorten(c.Description, 80),
		}
		if evidence {
			row = append(row, why(&c))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// why tells what a candidate's score is made of, and the examples that match.
func why(c *apiclient.Candidate) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Components)) {
		parts = append(parts, name+" "+score(c.Components[name]))
	}
	for _, x := range c.MatchedExamples {
		parts = append(parts, strconv.Quote(shorten(x.Text, 40)))
	}
	return strings.Join(parts, ", ")
}

func resolved(all []apiclient.Resolved) table {
	t := table{head: []string{"SCORE", "ID", "NAME (CLAIMED)", "ORIGIN", "TRANSPORT", "ENDPOINT (CLAIMED)", "WHY", "+METHOD", "+OPERATION", "+AUTHENTICATION (CLAIMED)", "+STATE", "+FLAGS"}}
	for _, r := range all {
		var reasons []string
		for _, x := range r.Reasons {
			reasons = append(reasons, x.Matched+" "+x.Value)
		}
		in, p := r.Invocation, r.Provenance
		t.rows = append(t.rows, []string{
			score(r.Score), r.ID, shorten(r.Name, 40), p.Authority, in.Transport, r.Endpoint, shorten(strings.Join(reasons, ", "), 80),
			in.Method, in.Operation, shorten(string(in.Auth), 80), p.Verification.State, strings.Join(r.Flags, " "),
		})
	}
	return t
}

func score(x float64) string { return fmt.Sprintf("%.3f", x) }
