package client

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// An Offer is an open offer of a registration to another identity.
type Offer = wire.Offer

// Transfers moves registrations to other owners: by an offer that the new owner accepts, or by an
// operator.
type Transfers struct{ client *Client }

// Transfers returns the part of the client that moves registrations to other owners.
func (c *Client) Transfers() Transfers { return Transfers{c} }

// Offer offers a registration of the caller's, by rid, name or path, to another identity: a
// SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT. It replaces an earlier offer of it. The offer is
// open for a lifetime in whole seconds; 0 leaves that to the directory.
func (t Transfers) Offer(ctx context.Context, id, to string, life time.Duration) (Offer, *Reply, error) {
	body := wire.Transfer{Owner: to}
	if life != 0 {
		body.ExpiresIn = new(lifetime(life))
	}

	return ask[Offer](ctx, t.client, transferOf(id), body, idempotent, "rid")
}

// Answer accepts or declines the offer of a registration to the caller. An identity that
// accepts owns it from then on and is the registrant of its contents. The error is ErrNotFound
// if there is no open offer, and ErrConflict if the registration has other contents by now.
func (t Transfers) Answer(ctx context.Context, id string, accept bool) (*Reply, error) {
	return t.client.command(ctx, transferOf(id), wire.Transfer{Accept: &accept}, once)
}

// Force gives a registration to another identity without an offer, as an operator.
func (t Transfers) Force(ctx context.Context, id, to string) (*Reply, error) {
	return t.client.command(ctx, transferOf(id), wire.Transfer{Owner: to, Force: true}, once)
}

// Withdraw withdraws the caller's offer of a registration.
func (t Transfers) Withdraw(ctx context.Context, id string) (*Reply, error) {
	return t.client.change(ctx, &request{method: http.MethodDelete, target: transferOf(id)})
}

// List returns a page of the open offers that the caller makes and is made: the first one if
// page is empty, else the one at an earlier Reply.NextPage.
func (t Transfers) List(ctx context.Context, page string) ([]Offer, *Reply, error) {
	out, r, err := read[wire.Offers](ctx, t.client, cmp.Or(page, "/ad/transfers"), "transfers")
	return out.Transfers, r, err
}

func transferOf(id string) string { return resource(id) + "/transfer" }
