package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// provenanceTable returns the way of a registration from its registrant to the directory.
func provenanceTable(
	ctx context.Context, session *connect.Session, client *apiclient.Client, r *apiclient.Registration,
) cli.Table {
	t := cli.Table{Head: []string{"STEP", "BY", "DETAIL", "TIME"}}
	provenance := r.Provenance

	addRegistration(session, &t, r)

	origin := provenance.Authority
	if provenance.Service != "" {
		origin += " at " + provenance.Service
	}

	position := fmt.Sprintf("registered at revision %d, expires %s", provenance.Revision,
		session.Time(provenance.ExpiresAt))
	t.Add("origin", origin, position, session.Time(provenance.UpdatedAt))

	// A registration without an export has no proof, so the table does without the page.
	if page, err := fetchPage(ctx, client, r.Href); err == nil {
		readers := "all peers"
		if page.Audience != directory.Mesh {
			readers = "the peer " + page.Audience.String()
		}

		detail := fmt.Sprintf("lists the changes at revisions %d to %d for %s", page.From+1, page.To, readers)
		t.Add("signed page", page.Issuer.Name(), detail, session.Time(time.Unix(page.IssuedAt, 0)))
	} else {
		session.Note("cannot show the signed page that lists it: %s", cli.FailureOf(err).Message)
	}

	if log := provenance.Verification.Log; log != nil {
		entry := fmt.Sprintf("entry %d of %s", log.Index, log.Origin)
		t.Add("ledger", provenance.Authority, entry, session.Time(log.At))
	}

	if provenance.ReceivedFrom != "" {
		t.Add("relay", provenance.ReceivedFrom, "sent the signed record", session.Time(provenance.ReceivedAt))
	}

	verification := provenance.Verification.State
	if key := provenance.Verification.Key; key != "" {
		verification += " by key " + key
	}

	t.Add("this directory", session.Address(), verification, session.Time(provenance.Verification.CheckedAt))

	return t
}

// addRegistration adds who registered the contents, from which source and for whom, and who
// gave the registration to its owner.
func addRegistration(session *connect.Session, t *cli.Table, r *apiclient.Registration) {
	provenance := r.Provenance

	registrant, detail := cmp.Or(provenance.Registrant, "(withheld)"), "registered "+r.Agent
	if provenance.Owner != "" && provenance.RegisteredBy != "" {
		detail += " for its owner"
	}

	if provenance.RegistrantState == string(directory.RegistrantClaimed) {
		detail += "; the origin claims so"
	}

	// The steps are in the order of time, so the source comes first.
	if provenance.ImportedFrom != "" {
		t.Add("source", provenance.ImportedFrom, "imported, as the registrant says", "")
	}

	t.Add("registrant", registrant, detail, session.Time(provenance.RegisteredAt))

	if provenance.TransferredBy != "" {
		t.Add("transfer", provenance.TransferredBy, "an operator gave it to another owner", "")
	}

	if provenance.Owner != "" {
		t.Add("owner", provenance.Owner, "may change it", "")
	}
}

// fetchPage returns the signed page that lists a registration, from the registration's
// proof. It verifies nothing; roster verify does.
func fetchPage(ctx context.Context, client *apiclient.Client, href string) (*signed.Page, error) {
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
		return nil, errors.New("malformed proof: the page is not a compact JWS")
	}

	payload, err := directory.B64.DecodeString(segments[1])
	if err != nil {
		return nil, err
	}

	return signed.ParsePage(payload)
}
