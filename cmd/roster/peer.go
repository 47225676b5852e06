package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/trust"
)

func (a *app) peerCommand() *cobra.Command {
	return group("peer", "Look at the domains that this one is peered with, and change it",
		a.peerInviteCommand(), a.peerAcceptCommand(), a.peerListCommand(), a.peerShowCommand(), a.peerExportCommand(), a.peerSetCommand(), a.peerEvidenceCommand(),
		a.peerVerbCommand("release", "Trust a frozen peer again", `Trust a frozen peer again. Do so once you know what happened: it is refused until the
peer has revoked a key that signed what the evidence shows, or has begun a new epoch.`, apiclient.PeerRelease, "%s is released"),
		a.peerVerbCommand("remove", "End a peering, at both sides", `End a peering. All that was had of the peer is dropped here, and it is told, so that
it drops what it had of this domain; where it can't be reached, deadlines do that.
An invitation that was not used yet is taken back.`, apiclient.PeerRemove, "%s is no peer any more"))
}

func (a *app) peerInviteCommand() *cobra.Command {
	var life time.Duration
	c := &cobra.Command{
		Use:   "invite DOMAIN",
		Short: "Make a token by which another domain becomes a peer, once",
		Long: `Make a token by which another domain becomes a peer, once. Hand it to that domain's
operator by a way that you trust, since it is a secret, and compare the fingerprint
by another: "roster peer accept" shows the same. Neither side exports anything yet.`,
		Args: needs("DOMAIN"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			made, reply, err := client.Invite(ctx, args[0], life)
			if err != nil {
				return suggest(err, exitConflict, a.command("peer", "show", args[0]))
			}
			t := table{head: []string{"TOKEN"}, rows: [][]string{{made.Token}}}
			if err := a.print(answer{reply.Body, "", t}); err != nil {
				return err
			}
			a.note("good once, until %s; this domain's fingerprint is %s", stamp(made.Until), made.Fingerprint)
			a.note("at %s:", args[0])
			a.note("  roster peer accept TOKEN")
			return a.sayExport(args[0])
		}),
	}
	c.Flags().DurationVar(&life, "life", time.Hour, "how long it holds, a week at most")
	return c
}

// sayExport ends what makes a peering: nothing is exported by it.
func (a *app) sayExport(domain string) error {
	a.note("nothing is exported to %s until you say so:", domain)
	a.note("  %s", a.command("peer", "export", domain))
	return nil
}

func (a *app) peerAcceptCommand() *cobra.Command {
	var fingerprint string
	c := &cobra.Command{
		Use:   "accept TOKEN",
		Short: "Become a peer of the domain that made a token",
		Long: `Become a peer of the domain that made a token with "roster peer invite". Compare the
fingerprint that is shown with the one that was shown there, or give it with
--fingerprint, and another is refused. To accept again is safe.`,
		Args: needs("TOKEN"),
		RunE: func(c *cobra.Command, args []string) error {
			token, err := api.ParseToken(args[0])
			if err != nil {
				return usage("%w", err)
			}
			td, err := spiffeid.TrustDomainFromString(token.Domain)
			if err != nil {
				return usage("the token is of no trust domain: %w", err)
			}
			found, err := trust.Fingerprint(td, token.Bundle)
			if err != nil {
				return failed(exitKey, "the token's bundle can't be used: %w", err)
			}
			if fingerprint != "" && fingerprint != found {
				return failed(exitKey, "the fingerprint of %s is %s", token.Domain, found).because("It is not the one that you gave: nothing was done. Ask who gave you the token.")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := client.Accept(c.Context(), args[0]); err != nil {
				err = suggest(err, exitUnavailable, a.command("peer", "show", token.Domain)) // and not the token: it is a secret
				return suggest(err, exitConflict, a.command("peer", "list"))
			}
			a.note("%s is a peer; its fingerprint is %s", token.Domain, found)
			return a.sayExport(token.Domain)
		},
	}
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "what the inviting side was shown")
	return c
}

func (a *app) peerListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the peered domains and how far behind their copies are",
		Args:  needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			peers, reply, err := client.Peers(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"DOMAIN", "STATE", "EXPORTED", "LAG REVISIONS", "LAG SECONDS", "LAST HEARD", "+WATERMARK", "+TIP", "+ADDRESSES", "+HOLDS BACK", "LAST ERROR"}}
			for _, p := range peers {
				t.rows = append(t.rows, []string{
					p.Domain, p.State, yes(p.Exported), strconv.FormatUint(p.LagRevisions, 10), strconv.FormatFloat(p.LagSeconds, 'f', 1, 64),
					stamp(p.LastHeard), p.Watermark, p.Tip, strings.Join(p.Addresses, " "), strings.Join(p.HoldsBack, " "), p.LastError,
				})
			}
			return a.print(answer{reply.Body, "peers", t})
		}),
	}
}

// peer returns one peer of the domain, as its node tells of it.
func (a *app) peer(ctx context.Context, client *apiclient.Client, domain string) (*apiclient.Peer, error) {
	peers, _, err := client.Peers(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(peers, func(p apiclient.Peer) bool { return p.Domain == domain })
	if i < 0 {
		return nil, failed(exitNotFound, "%s is no peer of this domain", domain).try(a.command("peer", "list"))
	}
	return &peers[i], nil
}

func (a *app) peerShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show DOMAIN",
		Short: "Show all that is known of a peering",
		Args:  needs("DOMAIN"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			peer, err := a.peer(ctx, client, args[0])
			if err != nil {
				return err
			}
			return a.printOwn(peer, "", shownPeer(*peer))
		}),
	}
}

// shownPeer leaves out what there is nothing to say of.
func shownPeer(p apiclient.Peer) table {
	t := table{head: []string{"WHAT", "VALUE"}}
	say := func(what, value string) {
		if value != "" {
			t.rows = append(t.rows, []string{what, value})
		}
	}
	say("domain", p.Domain)
	say("state", p.State)
	say("agreed", p.Agreed)
	say("ended by", p.EndedBy)
	say("invited until", stamp(p.Until))
	say("fingerprint", p.Fingerprint)
	say("exported to it", yes(p.Exported))
	if p.Unlisted {
		say("exported to us", "no")
	}
	say("addresses", strings.Join(p.Addresses, " "))
	say("gossip addresses", strings.Join(p.Gossip, " "))
	say("watermark", p.Watermark)
	say("tip", p.Tip)
	say("lag", strconv.FormatUint(p.LagRevisions, 10)+" revisions, "+strconv.FormatFloat(p.LagSeconds, 'f', 1, 64)+" s")
	say("last heard", stamp(p.LastHeard))
	if p.HeadAge > 0 {
		say("age of head", strconv.FormatFloat(p.HeadAge, 'f', 1, 64)+" s")
	}
	say("bundle endpoint", p.BundleEndpoint)
	say("bundle checked", stamp(p.BundleChecked))
	say("bundle error", p.BundleError)
	say("last error", p.LastError)
	if len(p.HoldsBack) > 0 {
		say("holds back formats of", strings.Join(p.HoldsBack, " "))
	}
	for _, r := range []struct {
		way   string
		rules apiclient.PeerRules
	}{{"export", p.Export}, {"import", p.Import}} {
		say(r.way+" names", strings.Join(r.rules.Names, " "))
		say(r.way+" capabilities", strings.Join(r.rules.Capabilities, " "))
		say(r.way+" kinds", strings.Join(r.rules.Kinds, " "))
		say(r.way+" quota of records", counted(r.rules.Records))
		say(r.way+" quota of bytes", counted(r.rules.Bytes))
		if parts := r.rules.OwnerShare; parts > 0 {
			say(r.way+" share of an owner", "1/"+strconv.FormatUint(uint64(parts), 10))
		}
		if lt := r.rules.MaxLifetime; lt > 0 {
			say(r.way+" lifetime at most", (time.Duration(lt) * time.Second).String())
		}
		say(r.way+" on stale", r.rules.OnStale)
	}
	if p.Hidden {
		say("hidden", "yes, since it wasn't heard for long")
	}
	say("records", ofLimit(p.Records, p.RecordsLimit))
	say("bytes", ofLimit(p.Bytes, p.BytesLimit))
	say("records missing", counted(uint64(p.Missing)))
	say("over quota", counted(p.OverQuota))
	say("unsupported", p.Unsupported)
	for _, format := range slices.Sorted(maps.Keys(p.Unopened)) {
		say("records of unsupported format "+format, strconv.FormatUint(p.Unopened[format], 10))
	}
	say("bytes in", counted(p.BytesIn))
	say("bytes out", counted(p.BytesOut))
	say("gossip in", counted(p.GossipIn))
	say("gossip out", counted(p.GossipOut))
	for _, e := range p.Evidence {
		say("evidence", e.ID+", found "+stamp(e.Found))
	}
	for _, code := range slices.Sorted(maps.Keys(p.Received)) {
		say("messages "+code, strconv.FormatUint(p.Received[code], 10))
	}
	for _, code := range slices.Sorted(maps.Keys(p.Refused)) {
		say("refused from it "+code, strconv.FormatUint(p.Refused[code], 10))
	}
	return t
}

// ofLimit shows how much of a quota is used; a limit of 0 is none.
func ofLimit(used, limit uint64) string {
	if limit == 0 {
		return counted(used)
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", used, limit, 100*float64(used)/float64(limit))
}

func (a *app) peerEvidenceCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "evidence DOMAIN",
		Short: "Save what shows that a peer contradicted itself",
		Long: `Write to standard output what shows that a peer contradicted itself, for which it is
frozen: the two things that it signed, and all that is needed to check them. Anyone
who has the peer's bundle can do so, without a network.`,
		Example: "  roster peer evidence beta.test > evidence.json\n  roster verify evidence.json --bundle beta.pem",
		Args:    needs("DOMAIN"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			file, err := client.Evidence(ctx, args[0], id)
			if err != nil {
				return suggest(err, exitNotFound, a.command("peer", "show", args[0]))
			}
			_, err = a.stdout.Write(file.Body)
			return err
		}),
	}
	c.Flags().StringVar(&id, "id", "", "which, as peer show lists it; the oldest by default")
	return c
}

func (a *app) peerExportCommand() *cobra.Command {
	var off bool
	c := &cobra.Command{
		Use:   "export DOMAIN",
		Short: "Let a peer have what is for the mesh, or no longer",
		Long: `Let a peer have the registrations whose visibility is mesh and that policy exports.
With --off it may have them no longer, and drops what it has.`,
		Args: needs("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			verb, said := apiclient.PeerExport, "%s may have what is for the mesh"
			if off {
				verb, said = apiclient.PeerUnexport, "%s may have nothing any more"
			}
			return a.changePeer(c.Context(), args[0], verb, said)
		},
	}
	c.Flags().BoolVar(&off, "off", false, "no longer")
	return c
}

func (a *app) peerVerbCommand(verb, short, long string, does apiclient.PeerVerb, said string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " DOMAIN", Short: short, Long: long, Args: needs("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error { return a.changePeer(c.Context(), args[0], does, said) },
	}
}

func (a *app) changePeer(ctx context.Context, domain string, verb apiclient.PeerVerb, said string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := client.ChangePeering(ctx, domain, verb); err != nil {
		return suggest(suggest(err, exitNotFound, a.command("peer", "list")), exitConflict, a.command("peer", "show", domain))
	}
	a.note(said, domain)
	return nil
}
