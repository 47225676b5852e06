package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/exp/bundle/witbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/roster-mesh/roster/directory"
)

const (
	tokenTimeout = 10 * time.Second // of the request of one JWT-SVID or WIT-SVID
	redialMax    = 5 * time.Second  // between two dials of an endpoint that is away
	dialTimeout  = 5 * time.Second
	rewatchAfter = 30 * time.Second // the longest wait after the library gave a watch up
)

// ErrNoJWTSVID is the error of a source that cannot get JWT-SVIDs.
var ErrNoJWTSVID = errors.New("this identity is read from files; JWT-SVIDs need a Workload API")

// A WorkloadAPI keeps a Source and Bundles up to date from a SPIFFE Workload API: one
// X.509-SVID, the authorities of its domain, and those of the federated domains. An
// invalid update changes nothing, and the last valid one stays in use while the API is
// unreachable. It is safe for concurrent use.
type WorkloadAPI struct {
	address string
	bundles *Bundles
	accept  func(spiffeid.ID) bool
	client  *workloadapi.Client
	first   chan struct{} // closed when source is set
	wits    bool          // follow WIT bundles; set before Run
	wit     witCache

	mu      sync.Mutex // guards the rest
	source  *Source
	gateway *Source    // of the gateway's identity; nil while none is offered
	sets    bundleSets // of the last valid update
	err     error      // of the last update or connection; nil if it was valid
}

// bundleSets are the bundles of each kind; nil before the first update.
type bundleSets struct {
	x509    *x509bundle.Set
	jwt     *jwtbundle.Set
	wit     *witbundle.Set
	applied map[spiffeid.TrustDomain]*spiffebundle.Bundle // as they were given to Bundles
}

// CheckWorkloadAPI returns an error unless address has the form of a Workload API's:
// unix:///PATH or tcp://IP:PORT (SPIFFE Workload Endpoint, 4).
func CheckWorkloadAPI(address string) error {
	target, err := workloadapi.TargetFromAddress(address)
	if err != nil {
		return err
	}

	// The library takes the first part of a path after two slashes for a host.
	if strings.HasPrefix(target, "unix:") && !strings.HasPrefix(target, "unix:///") {
		return errors.New("a unix URI has three slashes before the path: unix:///PATH")
	}

	return nil
}

// OpenWorkloadAPI returns the Workload API at address, which need not be reachable yet.
// Of the SVIDs that it offers, the first that accept returns true for is used. Run must
// be called; it keeps b up to date.
func OpenWorkloadAPI(address string, bundles *Bundles, accept func(spiffeid.ID) bool) (*WorkloadAPI, error) {
	if err := CheckWorkloadAPI(address); err != nil {
		return nil, fmt.Errorf("the Workload API at %s: %w", address, err)
	}

	// The endpoint is on this machine: no proxy of the environment leads to it, and frequent dials cost little.
	redial := backoff.DefaultConfig
	redial.MaxDelay = redialMax

	client, err := workloadapi.New(context.Background(), workloadapi.WithAddr(address),
		workloadapi.WithDialOptions(grpc.WithNoProxy(),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout})))
	if err != nil {
		return nil, fmt.Errorf("the Workload API at %s: %w", address, err)
	}

	return &WorkloadAPI{
		address: address,
		bundles: bundles,
		accept:  accept,
		client:  client,
		first:   make(chan struct{}),
		sets:    bundleSets{applied: map[spiffeid.TrustDomain]*spiffebundle.Bundle{}},
		err:     errors.New("no answer yet"),
	}, nil
}

// FollowWITBundles makes Run follow the keys that sign WIT-SVIDs too (SPIFFE Workload
// API, 7), which is an optional profile. It must be called before Run.
func (w *WorkloadAPI) FollowWITBundles() { w.wits = true }

// Run follows the Workload API until ctx ends, and closes it then. Updates that cannot
// be used are logged.
func (w *WorkloadAPI) Run(ctx context.Context, log *slog.Logger) {
	log = log.With("address", w.address)

	var wg sync.WaitGroup

	wg.Go(func() {
		svids := &svidWatch{ctx: ctx, log: log, api: w}
		rewatch(ctx, func() error { return w.client.WatchX509Context(ctx, svids) })
	})

	wg.Go(func() {
		keys := &keyWatch{ctx: ctx, log: log, api: w, kind: "JWT-SVIDs"}
		rewatch(ctx, func() error { return w.client.WatchJWTBundles(ctx, keys) })
	})

	if w.wits {
		wg.Go(func() {
			keys := &keyWatch{ctx: ctx, log: log, api: w, kind: "WIT-SVIDs"}
			rewatch(ctx, func() error { return w.client.WatchWITBundles(ctx, keys) })
		})
	}

	wg.Wait()

	if err := w.client.Close(); err != nil {
		log.Error("the connection to the Workload API can't be closed", "err", err)
	}
}

// rewatch repeats a watch until ctx ends. The library does so itself, except after
// InvalidArgument, Unimplemented and Canceled: an endpoint may be upgraded, though.
func rewatch(ctx context.Context, watch func() error) {
	for ctx.Err() == nil {
		wait := rewatchAfter
		if err := watch(); status.Code(err) == codes.Canceled {
			wait = time.Second
		}

		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Source waits for the first valid SVID and returns its source, which is updated from
// then on; the bundles are complete by then. When ctx ends first, the error is the last
// one of the Workload API.
func (w *WorkloadAPI) Source(ctx context.Context) (*Source, error) {
	select {
	case <-w.first:
		w.mu.Lock()
		defer w.mu.Unlock()

		return w.source, nil
	case <-ctx.Done():
		return nil, w.Err()
	}
}

// Gateway returns the source of the identity with which the node calls agents: the SVID
// that the Workload API offers under directory.GatewayPath of its domain. If it offers
// several, the one with the node's own name is used, else the first. It is nil while none
// is offered.
func (w *WorkloadAPI) Gateway() *Source {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.gateway
}

// Err returns why the last update or connection failed; nil if it did not.
func (w *WorkloadAPI) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.err == nil {
		return nil
	}

	return fmt.Errorf("the Workload API at %s: %w", w.address, w.err)
}

// A svidWatch takes the updates of X.509-SVIDs and their bundles.
type svidWatch struct {
	ctx context.Context // of the watch
	log *slog.Logger
	api *WorkloadAPI
}

// OnX509ContextUpdate applies and logs an update.
func (s *svidWatch) OnX509ContextUpdate(update *workloadapi.X509Context) {
	svid, refused, err := s.api.apply(update, time.Now())
	if err != nil {
		s.api.setError(s.log, err)
		return
	}

	if refused != nil {
		s.log.Error("invalid parts of an update from the Workload API; the previous ones stay in use", "err", refused)
	}

	if svid != nil {
		s.log.Info("new SVID", "id", svid.ID.String(), "expires", svid.Certificates[0].NotAfter)
	}
}

// OnX509ContextWatchError notes an update that cannot be parsed, or the end of the watch.
func (s *svidWatch) OnX509ContextWatchError(err error) {
	if s.ctx.Err() == nil {
		s.api.setError(s.log, err)
	}
}

func (w *WorkloadAPI) setError(log *slog.Logger, err error) {
	w.mu.Lock()
	w.err = err
	source := w.source
	w.mu.Unlock()

	if source == nil {
		log.Warn("waiting for an SVID from the Workload API", "err", err)
		return
	}

	log.Error("no valid update from the Workload API; the current SVID stays in use",
		"err", err, "expires", source.SVID().Certificates[0].NotAfter)
}

// apply takes an update into use, the bundles before the SVID, and returns the SVID if
// it is a new one. When the SVID or the bundle of its own domain is invalid, nothing
// changes. refused names the invalid bundles of other domains and the gateway's invalid
// SVID, which alone stay as they were.
func (w *WorkloadAPI) apply(update *workloadapi.X509Context, now time.Time) (svid *x509svid.SVID, refused, err error) {
	// The lock is held throughout: updateKeys applies the same sets, and must not see half an update.
	w.mu.Lock()
	defer w.mu.Unlock()

	svid, err = w.choose(update.SVIDs)
	if err != nil {
		return nil, nil, err
	}

	// An SVID that its own bundle does not certify would cut the node off from its domain.
	if err := verifyUpdate(svid, update.Bundles, now); err != nil {
		return nil, nil, err
	}

	w.sets.x509 = update.Bundles
	w.err = nil
	refused = errors.Join(w.sets.apply(w.bundles, svid.ID.TrustDomain()), w.applyGateway(update, svid.ID, now))

	switch {
	case w.source == nil:
		w.source = NewSource(svid)
		w.source.api = w
		close(w.first)
	case svid.Certificates[0].Equal(w.source.SVID().Certificates[0]):
		// An update may bring bundles alone, and a swap would wake all that wait on Changed.
		return nil, refused, nil
	default:
		w.source.Set(svid)
	}

	return svid, refused, nil
}

// choose returns the first acceptable SVID; after the first update, only one of the
// same identity is.
func (w *WorkloadAPI) choose(svids []*x509svid.SVID) (*x509svid.SVID, error) {
	if w.source != nil {
		id := w.source.SVID().ID
		for _, svid := range svids {
			if svid.ID == id {
				return svid, nil
			}
		}

		return nil, fmt.Errorf("it no longer offers an SVID of %s", id)
	}

	for _, svid := range svids {
		if w.accept(svid.ID) {
			return svid, nil
		}
	}

	return nil, fmt.Errorf("none of the %d SVIDs that it offers is acceptable; the first is %s", len(svids),
		svids[0].ID)
}

// applyGateway takes the gateway's SVID of an update into use, for the node with that ID.
func (w *WorkloadAPI) applyGateway(update *workloadapi.X509Context, node spiffeid.ID, now time.Time) error {
	svid := gatewaySVID(update.SVIDs, node)
	if svid == nil {
		w.gateway = nil
		return nil
	}

	if err := verifyUpdate(svid, update.Bundles, now); err != nil {
		return fmt.Errorf("the gateway's SVID of %s: %w", svid.ID, err)
	}

	if w.gateway == nil || w.gateway.SVID().ID != svid.ID {
		w.gateway = NewSource(svid)
		w.gateway.api = w
	} else {
		w.gateway.Set(svid)
	}

	return nil
}

// gatewaySVID returns the SVID with which a node calls agents; nil if there is none.
func gatewaySVID(svids []*x509svid.SVID, node spiffeid.ID) (first *x509svid.SVID) {
	name := node.Path()[strings.LastIndexByte(node.Path(), '/')+1:]

	for _, svid := range svids {
		switch {
		case !IsGateway(svid.ID) || !svid.ID.MemberOf(node.TrustDomain()):
		case svid.ID.Path() == directory.GatewayPath+name:
			return svid
		case first == nil:
			first = svid
		}
	}

	return first
}

// verifyUpdate verifies an SVID by the bundle that came with it.
func verifyUpdate(svid *x509svid.SVID, set *x509bundle.Set, now time.Time) error {
	td := svid.ID.TrustDomain()

	own, ok := set.Get(td)
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoBundle, td)
	}

	// A set of its own leaves the node's bundles as they are if the update is refused.
	trial := NewBundles()
	if err := trial.SetX509(td, own.X509Authorities()); err != nil {
		return err
	}

	_, err := verifyChain(svid.Certificates, trial, forClient, now)

	return err
}

// updateKeys applies the bundles of JWT-SVIDs or WIT-SVIDs, which set stores. Before
// the first X.509-SVID they are only stored.
func (w *WorkloadAPI) updateKeys(keys *keyWatch, set func()) {
	keys.logged = ""

	w.mu.Lock()
	defer w.mu.Unlock()

	set()

	if w.source == nil {
		return
	}

	if refused := w.sets.apply(w.bundles, w.source.SVID().ID.TrustDomain()); refused != nil {
		keys.log.Error("invalid bundles from the Workload API; the previous ones stay in use", "err", refused)
	}
}

// apply copies the bundles into b: that of the own domain replaces the one of b, those
// of others precede the ones agreed with their domains. An invalid one stays as it was.
func (s *bundleSets) apply(bundles *Bundles, own spiffeid.TrustDomain) (refused error) {
	// The bundle that was agreed with a domain applies again once the API no longer federates it.
	for td := range s.applied {
		if !s.x509.Has(td) {
			bundles.Unfederate(td)
			delete(s.applied, td)
		}
	}

	for _, bundle := range s.x509.Bundles() {
		td := bundle.TrustDomain()

		next := s.joined(bundle)
		if old := s.applied[td]; old != nil && old.Equal(next) {
			continue
		}

		put := bundles.Federate
		if td == own {
			put = bundles.Set
		}

		jwks, err := next.Marshal()
		if err == nil {
			err = put(td, jwks)
		}

		// One invalid bundle must not keep the others from being renewed.
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}

		s.applied[td] = next
	}

	return refused
}

// joined returns the bundle of a domain with the keys of every kind.
func (s *bundleSets) joined(authorities *x509bundle.Bundle) *spiffebundle.Bundle {
	td := authorities.TrustDomain()
	bundle := spiffebundle.FromX509Authorities(td, authorities.X509Authorities())

	if s.jwt != nil {
		if keys, ok := s.jwt.Get(td); ok {
			bundle.SetJWTAuthorities(keys.JWTAuthorities())
		}
	}

	if s.wit != nil {
		if keys, ok := s.wit.Get(td); ok {
			bundle.SetWITAuthorities(keys.WITAuthorities())
		}
	}

	return bundle
}

// A keyWatch takes the updates of the keys of one kind of tokens. It logs its failures,
// each reason once: a Workload API need not support the profile.
type keyWatch struct {
	ctx    context.Context // of the watch
	log    *slog.Logger
	api    *WorkloadAPI
	kind   string // of the SVIDs that the keys sign
	logged string // the last error
}

// OnJWTBundlesUpdate implements workloadapi.JWTBundleWatcher.
func (k *keyWatch) OnJWTBundlesUpdate(set *jwtbundle.Set) {
	k.api.updateKeys(k, func() { k.api.sets.jwt = set })
}

// OnJWTBundlesWatchError implements workloadapi.JWTBundleWatcher.
func (k *keyWatch) OnJWTBundlesWatchError(err error) { k.failed(err) }

// OnWITBundlesUpdate implements workloadapi.WITBundleWatcher.
func (k *keyWatch) OnWITBundlesUpdate(set *witbundle.Set) {
	k.api.updateKeys(k, func() { k.api.sets.wit = set })
}

// OnWITBundlesWatchError implements workloadapi.WITBundleWatcher.
func (k *keyWatch) OnWITBundlesWatchError(err error) { k.failed(err) }

func (k *keyWatch) failed(err error) {
	if k.ctx.Err() != nil || err.Error() == k.logged {
		return
	}

	k.logged = err.Error()
	k.log.Warn("no keys for "+k.kind+" from the Workload API; the known ones stay in use", "err", err)
}

// JWTSVID returns a JWT-SVID of the source's identity for an audience, and its expiry.
// It must be sent only to that audience. Every call asks the Workload API, which caches
// them itself. The error is ErrNoJWTSVID if the source has no Workload API.
func (s *Source) JWTSVID(ctx context.Context, audience string) (token string, expiry time.Time, err error) {
	if s.api == nil {
		return "", time.Time{}, ErrNoJWTSVID
	}

	if audience == "" {
		return "", time.Time{}, errors.New("a JWT-SVID needs an audience")
	}

	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()

	id := s.SVID().ID
	svid, err := s.api.client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: audience, Subject: id})

	switch {
	case err != nil:
		return "", time.Time{}, fmt.Errorf("no JWT-SVID from the Workload API at %s: %w", s.api.address, err)
	case svid.ID != id:
		return "", time.Time{}, fmt.Errorf("the Workload API at %s issued a JWT-SVID of %s, not of %s",
			s.api.address, svid.ID, id)
	}

	return svid.Marshal(), svid.Expiry, nil
}

// Err returns nil while the source's SVID is valid; afterwards the time of its expiry,
// and why no replacement arrived.
func (s *Source) Err() error {
	expiry := s.SVID().Certificates[0].NotAfter
	if time.Now().Before(expiry) {
		return nil
	}

	err := fmt.Errorf("SVID expired at %s and no replacement is available", expiry.UTC().Format(time.RFC3339))

	if cause := s.Trouble(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}

	return err
}
