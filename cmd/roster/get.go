package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

func (a *app) getCommand() *cobra.Command {
	var origin string
	var provenance bool
	var fresh apiclient.ReadOptions
	c := &cobra.Command{
		Use:   "get NAME|RID",
		Short: "Show one registration of the directory's domain or of another",
		Long: `Show one registration in full. A name means the directory's own domain first, then
the one other domain that has it; --origin says which domain is meant.

The table tells what the registrant claims from what the directory knows.
With --provenance it shows the way that the registration came.`,
		Args: needs("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.get(c.Context(), args[0], origin, provenance, fresh)
		},
	}
	c.Flags().StringVar(&origin, "origin", "", "the domain that registered it")
	c.Flags().BoolVar(&provenance, "provenance", false, "show where it comes from, who vouches for it, and how it came here")
	readFlags(c, &fresh)
	return c
}

// readFlags are the flags of reads that say how fresh the answer must be.
func readFlags(c *cobra.Command, o *apiclient.ReadOptions) {
	f := c.Flags()
	f.StringVar(&o.Consistency, "consistency", "", "default, stale (whatever that node has) or linearizable (all that any node of the directory's domain acknowledged)")
	f.StringArrayVar(&o.Min, "min", nil, "wait for DOMAIN=EPOCH.REVISION, as a write or another read told it")
	f.Var(&seconds{of: &o.Wait, zero: -1}, "wait", "how many seconds to wait for --min, 0 to 60 (default 5)")
}

// seconds is a flag of a whole number of seconds. zero is what 0 stands for, if
// that is not the same as not given.
type seconds struct {
	of   *time.Duration
	zero time.Duration
}

func (s *seconds) String() string { return "" }

// Type names the flag's value in the help.
func (s *seconds) Type() string { return "int" }

// Set is called with what stands behind the flag.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("it is a whole number of seconds")
	}
	*s.of = time.Duration(n) * time.Second
	if n == 0 {
		*s.of = s.zero
	}
	return nil
}

func (a *app) get(ctx context.Context, id, origin string, provenance bool, fresh apiclient.ReadOptions) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	path, err := locate(ctx, client, id, origin, fresh)
	if err != nil {
		return a.suggestLookup(err, id)
	}
	r, err := client.GetFresh(ctx, path, fresh)
	if err != nil {
		err = a.suggestLookup(err, id)
		return a.ambiguous(err, id)
	}
	t := describe(&r.Registration)
	if provenance {
		t = a.way(ctx, client, &r.Registration)
	}
	return a.print(answer{body: r.Body, table: t})
}

// locate returns the path of a registration. Of another domain's, only the rid
// makes one, so its name is looked up.
func locate(ctx context.Context, client *apiclient.Client, id, origin string, fresh apiclient.ReadOptions) (string, error) {
	if _, err := directory.ParseRID(id); origin == "" || err == nil {
		return resource(id, origin), nil
	}
	if _, err := directory.ParseName(id); err != nil {
		return "", err
	}
	found, err := client.Lookup(ctx, apiclient.LookupOptions{Agent: id, Origin: origin, ReadOptions: fresh})
	if err != nil {
		return "", err
	}
	if len(found.Agents) == 0 {
		return "", failed(exitNotFound, "%s has no registration called %q here, or none that you may see", origin, id)
	}
	return found.Agents[0].Href, nil
}

// ambiguous turns the answer that several domains have a name into a failure that
// names them.
func (a *app) ambiguous(err error, id string) error {
	var e *apiclient.Error
	if !errors.As(err, &e) || e.Status != http.StatusMultipleChoices {
		return err
	}
	var origins []string
	for _, link := range e.Header.Values("Link") {
		_, rest, _ := strings.Cut(link, "</ad/r/")
		if origin, _, ok := strings.Cut(rest, "/"); ok {
			origins = append(origins, origin)
		}
	}
	f := failed(exitConflict, "several domains have a registration called %q", id).because("They are %s: say which is meant.", strings.Join(origins, ", "))
	if len(origins) > 0 {
		f.next = a.command("get", id, "--origin", origins[0])
	}
	return f
}

// describe tells a registration: what the directory knows of it, and what its
// registrant claims.
func describe(r *apiclient.Registration) table {
	t := table{head: []string{"MEMBER", "BY", "VALUE"}}
	add := func(by, member, value string) {
		if value != "" {
			t.rows = append(t.rows, []string{member, by, value})
		}
	}
	p := r.Provenance
	add("directory", "agent", r.Agent)
	add("directory", "rid", r.RID())
	add("directory", "origin", p.Authority)
	add("directory", "registrant", p.Registrant)
	add("directory", "verification", standing(p))
	add("directory", "probe", probed(p.Verification.Probe))
	add("directory", "kind", r.Kind)
	add("directory", "visibility", p.Visibility)
	add("directory", "registered", instant(r.RegisteredAt))
	add("directory", "updated", instant(r.UpdatedAt))
	add("directory", "expires", instant(r.ExpiresAt))
	add("claimed", "name", r.Name)
	add("claimed", "description", r.Description)
	add("claimed", "base", r.Base)
	add("claimed", "protocols", strings.Join(r.Protocols, " "))
	add("claimed", "status", r.Status)
	add("claimed", "version", r.Version)
	add("claimed", "vendor", r.Vendor)
	for _, c := range r.Capabilities {
		text := c.Name + " (" + c.Type + ")"
		if c.Description != "" {
			text += ": " + c.Description
		}
		add("claimed", "capability", text)
	}
	if r.Redacted {
		add("directory", "redacted", "members are withheld")
	}
	return t
}

// standing says how far a registration is to be relied on, and what speaks against it.
func standing(p apiclient.Provenance) string {
	switch v := p.Verification; {
	case v.Unconfirmed:
		return v.State + ", unconfirmed: no peer sees it until its owner refreshes it"
	case v.Disputed:
		return v.State + ", disputed: its origin contradicted itself"
	default:
		return v.State
	}
}

// probed says what the agent itself told the directory, if it was asked.
func probed(p *apiclient.Probe) string {
	switch {
	case p == nil:
		return ""
	case len(p.Members) > 0:
		return p.State + " at " + instant(p.CheckedAt) + ": its agent says otherwise of " + strings.Join(p.Members, ", ")
	case p.Reason != "":
		return p.State + " at " + instant(p.CheckedAt) + ": " + p.Reason
	}
	return p.State + " at " + instant(p.CheckedAt)
}

// way tells how a registration came here, from its registrant on.
func (a *app) way(ctx context.Context, client *apiclient.Client, r *apiclient.Registration) table {
	t := table{head: []string{"STEP", "WHO", "WHAT", "WHEN"}}
	add := func(step, who, what, when string) { t.rows = append(t.rows, []string{step, who, what, when}) }
	p := r.Provenance
	registrant := p.Registrant
	if registrant == "" {
		registrant = "(not shown)"
	}
	add("registrant", registrant, "registered "+r.Agent, instant(p.RegisteredAt))
	origin := p.Authority
	if p.Service != "" {
		origin += " at " + p.Service
	}
	add("origin", origin, "revision "+strconv.FormatUint(p.Revision, 10)+", deadline "+instant(p.ExpiresAt), instant(p.UpdatedAt))
	if page, err := pageOf(ctx, client, r.Href); err == nil {
		add("page", page.Issuer.Name(), "stream "+page.Audience.String()+", revisions "+strconv.FormatUint(page.From+1, 10)+" to "+strconv.FormatUint(page.To, 10), stamp(time.Unix(page.IssuedAt, 0)))
	} else {
		a.note("The signed page that lists it can't be shown: %s", failureOf(err).what)
	}
	if p.ReceivedFrom != "" {
		add("handed over", p.ReceivedFrom, "the signed record", instant(p.ReceivedAt))
	}
	what := p.Verification.State
	if key := p.Verification.Key; key != "" {
		what += " by key " + key
	}
	add("here", a.setting("address"), what, instant(p.Verification.CheckedAt))
	return t
}

// pageOf reads which signed page lists a registration, out of its proof. Nothing
// is verified here: roster verify does that.
func pageOf(ctx context.Context, client *apiclient.Client, href string) (*signed.Page, error) {
	reply, err := client.Proof(ctx, href)
	if err != nil {
		return nil, err
	}
	proof, err := trust.ParseProof(reply.Body)
	if err != nil {
		return nil, err
	}
	segments := strings.Split(proof.Page, ".")
	if len(segments) != 3 {
		return nil, errors.New("the page is no JWS")
	}
	payload, err := directory.B64.DecodeString(segments[1])
	if err != nil {
		return nil, err
	}
	return signed.ParsePage(payload)
}
