package agents

import (
	"context"
	"errors"
	"strings"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// audienceOf returns to which peers a registration is sent; nil if it is of another domain, if the
// caller may not know it, or if the directory gives no answer, which is noted.
func audienceOf(
	ctx context.Context, session *connect.Session, client *apiclient.Client, r *apiclient.Registration,
) *apiclient.Audience {
	if r.Provenance.Verification.State != stateLocal {
		return nil
	}

	sent, _, err := client.Audience(ctx, r.RID())

	var refused *apiclient.Error

	switch {
	// The caller may not know the audience, or the registration has ended since it was read.
	case errors.As(err, &refused) && refused.Status < 500:
		return nil
	case err != nil:
		session.Note("cannot show to which peers it is sent: %s", cli.FailureOf(err).Message)
		return nil
	}

	return &sent
}

// stateLocal is the state of verification of the directory's own registrations.
const stateLocal = "local"

// addAudience adds who outside the domain sees a registration.
func addAudience(add func(by, member, value string), visibility string, sent *apiclient.Audience) {
	if visibility == "" && sent != nil {
		// A registration without a visibility of its own has the domain's default.
		visibility = sent.Visibility
	}

	switch {
	case visibility == "":
	case visibility == visibleInDomain:
		add(byDirectory, "visibility", visibility+" (no other domain sees it)")

	// Without the audience, only the intent of the registrant is known.
	case sent == nil:
		add(byDirectory, "visibility", visibility+" (as far as policy and the peerings let them see it)")
	default:
		add(byDirectory, "visibility", visibility)
	}

	// The visibility alone says that no peer gets it; a row for each peer would repeat that.
	if sent == nil || visibility == visibleInDomain {
		return
	}

	if len(sent.Peers) == 0 {
		add(byDirectory, "sent to", "no domain: there are no peers")
	}

	for _, peer := range sent.Peers {
		member := "withheld from"
		if peer.Sent {
			member = "sent to"
		}

		detail := recipientDetail(peer)
		if detail != "" {
			detail = " (" + detail + ")"
		}

		add(byDirectory, member, peer.Domain+detail)
	}
}

// recipientDetail returns why a peer does not get a registration, or which policies decided, and
// the members that it does not get.
func recipientDetail(peer apiclient.Recipient) string {
	parts := []string{reasonWithheld(peer.Domain, peer.Reason)}
	if len(peer.Policies) > 0 {
		parts = append(parts, "decided by "+strings.Join(peer.Policies, ", "))
	}

	if len(peer.Withheld) > 0 {
		parts = append(parts, "without "+strings.Join(peer.Withheld, ", "))
	}

	if parts[0] == "" {
		parts = parts[1:]
	}

	return strings.Join(parts, "; ")
}

// reasonWithheld returns the words for a reason of the directory.
func reasonWithheld(peer, reason string) string {
	switch reason {
	case apiclient.WithheldInactive:
		return "the peering is pending"
	case apiclient.WithheldNotExported:
		return "nothing is exported to it before roster peer export " + peer
	case apiclient.WithheldVisibility:
		return "the registration's visibility leaves it out"
	case apiclient.WithheldRules:
		return "the peering's rules for exports leave it out: roster peer show " + peer
	case apiclient.WithheldPolicy:
		return "policy does not permit it"
	case apiclient.WithheldUnconfirmed:
		return "it was restored from a backup, and its owner has not refreshed it since"
	}

	return reason
}

// printAudience prints to which peers a registration is sent.
func printAudience(
	ctx context.Context, session *connect.Session, client *apiclient.Client, r *apiclient.Registration,
) error {
	if r.Provenance.Verification.State != stateLocal {
		return cli.Failed(cli.ExitRefused,
			"%s is a registration of %s, and only that directory knows to whom it sends it", r.Agent,
			r.Provenance.Authority)
	}

	sent, reply, err := client.Audience(ctx, r.RID())
	if err != nil {
		return err
	}

	t := cli.Table{Head: []string{"PEER", "SENT", "WHY"}}
	for _, peer := range sent.Peers {
		t.Add(peer.Domain, cli.YesNo(peer.Sent), recipientDetail(peer))
	}

	return session.Print(cli.Answer{Body: reply.Body, Items: "peers", Table: t})
}
