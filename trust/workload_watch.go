package trust

import (
	"context"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/exp/bundle/witbundle"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// An x509Watcher is told of X.509-SVIDs and bundles.
type x509Watcher struct {
	w   *WorkloadAPI
	ctx context.Context // of the watch
	log *slog.Logger
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (x *x509Watcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	svid, refused, err := x.w.take(update, time.Now())
	if err != nil {
		x.OnX509ContextWatchError(err)
		return
	}
	if refused != nil {
		x.log.Error("bundles of the Workload API can't be used; the old ones stay", "err", refused)
	}
	if svid != nil {
		x.log.Info("new SVID", "id", svid.ID.String(), "expires", svid.Certificates[0].NotAfter)
	}
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher.
func (x *x509Watcher) OnX509ContextWatchError(err error) {
	if x.ctx.Err() != nil {
		return
	}
	x.w.failed(err)
	select {
	case <-x.w.first:
		x.log.Error("the Workload API gives nothing that can be used; the old SVID stays", "address", x.w.address, "err", err,
			"expires", x.w.source.SVID().Certificates[0].NotAfter)
	default:
		x.log.Warn("waiting for an SVID of the Workload API", "address", x.w.address, "err", err)
	}
}

// A keyWatcher is told of the keys of JWT-SVIDs, or of WIT-SVIDs.
type keyWatcher struct {
	w    *WorkloadAPI
	ctx  context.Context // of the watch
	log  *slog.Logger
	what string
	last string // what was logged last
}

// OnJWTBundlesUpdate implements workloadapi.JWTBundleWatcher.
func (k *keyWatcher) OnJWTBundlesUpdate(set *jwtbundle.Set) { k.take(func() { k.w.jwt = set }) }

// OnWITBundlesUpdate implements workloadapi.WITBundleWatcher.
func (k *keyWatcher) OnWITBundlesUpdate(set *witbundle.Set) { k.take(func() { k.w.wit = set }) }

func (k *keyWatcher) take(note func()) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.last = ""
	note()
	if k.w.source == nil {
		return // they are applied with the first SVID
	}
	if refused := k.w.apply(k.w.source.SVID().ID.TrustDomain()); refused != nil {
		k.log.Error("bundles of the Workload API can't be used; the old ones stay", "err", refused)
	}
}

// OnJWTBundlesWatchError implements workloadapi.JWTBundleWatcher.
func (k *keyWatcher) OnJWTBundlesWatchError(err error) { k.missed(err) }

// OnWITBundlesWatchError implements workloadapi.WITBundleWatcher.
func (k *keyWatcher) OnWITBundlesWatchError(err error) { k.missed(err) }

// missed tells each reason once: a Workload API may have no such keys.
func (k *keyWatcher) missed(err error) {
	if k.ctx.Err() != nil || err.Error() == k.last {
		return
	}
	k.last = err.Error()
	k.log.Warn("the Workload API gives no keys of "+k.what+"; those that were known stay", "address", k.w.address, "err", err)
}
