package trust

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNoWITSVID says that a source gives no WIT-SVIDs.
var ErrNoWITSVID = errors.New("this identity comes from files, which give no WIT-SVID")

// A witKeeper keeps a WIT-SVID of the Workload API for half of the time that it is good,
// and for the other half where there is no other.
type witKeeper struct {
	mu    sync.Mutex // held while the Workload API is asked, guards the rest
	svid  *witsvid.SVID
	until time.Time // when the next is asked for
}

// Prove shows s's identity by a WIT-SVID of its Workload API (SPIFFE Workload API, 7) and
// a proof by its key, as Workload.Prove does by files. The error is ErrNoWITSVID where s
// is no Workload API's.
func (s *Source) Prove(ctx context.Context, method, target string, now time.Time) (wit, proof string, err error) {
	if s.api == nil {
		return "", "", ErrNoWITSVID
	}
	svid, err := s.witSVID(ctx, now)
	if err != nil {
		return "", "", fmt.Errorf("the Workload API at %s gives no WIT-SVID: %w", s.api.address, err)
	}
	key, ok := svid.PrivateKey.(crypto.Signer)
	if !ok {
		return "", "", fmt.Errorf("the Workload API at %s gave a WIT-SVID with a key that signs nothing", s.api.address)
	}
	if proof, err = prove(svid.Marshal(), key, method, target, now); err != nil {
		return "", "", fmt.Errorf("the WIT-SVID of the Workload API at %s: %w", s.api.address, err)
	}
	return svid.Marshal(), proof, nil
}

func (s *Source) witSVID(ctx context.Context, now time.Time) (*witsvid.SVID, error) {
	k := &s.api.shown
	k.mu.Lock()
	defer k.mu.Unlock()
	id := s.SVID().ID
	if k.svid != nil && k.svid.ID == id && now.Before(k.until) {
		return k.svid, nil
	}
	svid, err := s.fetchWITSVID(ctx, id)
	switch {
	case err == nil:
		k.svid, k.until = svid, now.Add(svid.Expiry.Sub(now)/2)
	case k.svid == nil || k.svid.ID != id || !now.Add(dialAgain).Before(k.svid.Expiry):
		return nil, err
	default: // this one is good still, and none waits for the next at each request
		k.until = now.Add(dialAgain)
	}
	return k.svid, nil
}

func (s *Source) fetchWITSVID(ctx context.Context, id spiffeid.ID) (*witsvid.SVID, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenBound)
	defer cancel()
	svid, err := s.api.client.FetchWITSVID(ctx, id.String())
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("it knows none: %w", err)
	case err != nil:
		return nil, err
	case svid.ID != id:
		return nil, fmt.Errorf("it gave one of %s", svid.ID)
	}
	return svid, nil
}
