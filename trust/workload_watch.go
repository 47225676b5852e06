package trust

import (
	"context"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
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

// A jwtWatcher is told of the keys of JWT-SVIDs.
type jwtWatcher struct {
	w    *WorkloadAPI
	ctx  context.Context // of the watch
	log  *slog.Logger
	last string // what was logged last
}

// OnJWTBundlesUpdate implements workloadapi.JWTBundleWatcher.
func (j *jwtWatcher) OnJWTBundlesUpdate(set *jwtbundle.Set) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.last, j.w.jwt = "", set
	if j.w.source == nil {
		return // they are applied with the first SVID
	}
	if refused := j.w.apply(j.w.source.SVID().ID.TrustDomain()); refused != nil {
		j.log.Error("bundles of the Workload API can't be used; the old ones stay", "err", refused)
	}
}

// OnJWTBundlesWatchError implements workloadapi.JWTBundleWatcher. A Workload API may
// have no JWT-SVIDs: each reason is told once.
func (j *jwtWatcher) OnJWTBundlesWatchError(err error) {
	if j.ctx.Err() != nil || err.Error() == j.last {
		return
	}
	j.last = err.Error()
	j.log.Warn("the Workload API gives no keys of JWT-SVIDs; those that were known stay", "address", j.w.address, "err", err)
}
