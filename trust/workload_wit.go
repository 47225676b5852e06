package trust

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// witRetry is the wait after a failed renewal of a WIT-SVID that is still valid.
const witRetry = 5 * time.Second

// ErrNoWITSVID is the error of a source that cannot get WIT-SVIDs.
var ErrNoWITSVID = errors.New("this identity is read from files; WIT-SVIDs need a Workload API")

// A witCache keeps a WIT-SVID of the Workload API for half of its lifetime, and for the
// other half while it cannot be renewed.
type witCache struct {
	mu    sync.Mutex // held during a renewal; guards the rest
	svid  *witsvid.SVID
	renew time.Time // when the next one is requested
}

// WITSVID returns a WIT-SVID of the source's identity with its private key (SPIFFE Workload
// API, 7). The error is ErrNoWITSVID if the source has no Workload API.
func (s *Source) WITSVID(ctx context.Context, now time.Time) (*witsvid.SVID, error) {
	if s.api == nil {
		return nil, ErrNoWITSVID
	}

	svid, err := s.api.wit.get(ctx, s.api.client, s.SVID().ID, now)
	if err != nil {
		return nil, fmt.Errorf("no WIT-SVID from the Workload API at %s: %w", s.api.address, err)
	}

	return svid, nil
}

// get returns a valid WIT-SVID of an identity, cached or new.
func (c *witCache) get(
	ctx context.Context, client *workloadapi.Client, id spiffeid.ID, now time.Time,
) (*witsvid.SVID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	cached := c.svid != nil && c.svid.ID == id
	if cached && now.Before(c.renew) {
		return c.svid, nil
	}

	svid, err := fetchWIT(ctx, client, id)

	switch {
	case err == nil:
		c.svid = svid
		c.renew = now.Add(svid.Expiry.Sub(now) / 2)
	case !cached || !now.Add(witRetry).Before(c.svid.Expiry):
		// An SVID that ends before the next attempt could expire on its way to the receiver.
		return nil, err
	default:
		// The cached one is still valid: later requests do not wait for the API.
		c.renew = now.Add(witRetry)
	}

	return c.svid, nil
}

func fetchWIT(ctx context.Context, client *workloadapi.Client, id spiffeid.ID) (*witsvid.SVID, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()

	svid, err := client.FetchWITSVID(ctx, id.String())

	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("the API does not support WIT-SVIDs: %w", err)
	case err != nil:
		return nil, err
	case svid.ID != id:
		return nil, fmt.Errorf("it was issued for %s, not for %s", svid.ID, id)
	}

	return svid, nil
}
