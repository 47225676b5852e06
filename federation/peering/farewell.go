package peering

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Bounds of a farewell.
const (
	farewellTime = 5 * time.Second  // for one node to answer
	farewells    = 10 * time.Minute // for any node: afterwards the deadlines remove the records
)

// sayFarewell notifies a former peer that the agreement has ended, so that it drops this
// domain's data at once (MESH-025). A peer that can't be reached drops the data by
// deadlines. It reports whether a node of the peer has acknowledged that.
func (a *Agreements) sayFarewell(ctx context.Context, peering directory.Peering) (acknowledged bool) {
	name := peering.Domain.Name()

	client, done, err := a.cfg.Client(peering)
	if err != nil {
		a.cfg.Logger.Warn("farewell to a former peer failed", "peer", name, "err", err)
		return false
	}
	defer done()

	turn := 0

	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		now, ok := a.With(peering.Domain)
		if !ok || now.State != directory.PeeringTerminated || len(peering.Addresses) == 0 {
			return struct{}{}, nil // the domains peer again
		}

		turn++

		return struct{}{}, a.farewell(ctx, client, peering, peering.Addresses[turn%len(peering.Addresses)])
	}, backoff.WithMaxElapsedTime(farewells))
	if err != nil {
		a.cfg.Logger.Warn("farewell to a former peer failed; it removes this domain's records by their deadlines",
			"peer", name, "err", err)
	}

	return err == nil
}

var (
	errNotTaken = errors.New("the node failed to take the farewell")
	errNoOrder  = errors.New("the operator's request is not known here yet")
)

// farewell says the farewell to one node, with the request of the operator who has ended the peering.
func (a *Agreements) farewell(ctx context.Context, client *http.Client, peering directory.Peering,
	address string) error {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()

	order := a.cfg.Removal(peering.Domain)
	if order == nil {
		return errNoOrder
	}

	body, err := protocol.EncodeFarewell(order)
	if err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+protocol.PathFarewell, bytes.NewReader(body))
	if err != nil {
		return err
	}

	resp, err := client.Do(req)
	if protocol.RejectsCertificate(err) {
		return nil // it has dropped this domain's authorities: another node's farewell was taken
	}

	if err != nil {
		return err
	}

	defer resp.Body.Close()

	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))

	if resp.StatusCode >= http.StatusInternalServerError {
		return errNotTaken
	}

	return nil // or refused: it is no peer there any more
}
