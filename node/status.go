package node

import (
	"runtime/debug"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/trust"
)

// A selfReport describes this node to operators.
type selfReport struct {
	id      spiffeid.ID
	data    string // directory
	store   *consensus.Store
	source  *trust.Source
	bundles *trust.Bundles
	ready   func() error
}

// Node returns the state of this node.
func (r selfReport) Node() wire.NodeStatus {
	status := wire.NodeStatus{
		ID:            r.id.String(),
		Version:       programVersion(),
		Ready:         true,
		Position:      r.store.Position().String(),
		BundleExpires: r.bundleExpires(),
	}

	if err := r.ready(); err != nil {
		status.Ready = false
		status.NotReady = err.Error()
	}

	if svid := r.source.SVID(); svid != nil {
		status.SVIDExpires = svid.Certificates[0].NotAfter.UTC()
	}

	if free, percent, err := FreeSpace(r.data); err == nil {
		status.DiskFree = free
		status.DiskFreePercent = percent
	}

	return status
}

// bundleExpires returns the end of the last CA certificate in the domain's bundle.
func (r selfReport) bundleExpires() (last time.Time) {
	bundle, err := r.bundles.GetX509BundleForTrustDomain(r.id.TrustDomain())
	if err != nil {
		return last
	}

	for _, authority := range bundle.X509Authorities() {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter.UTC()
		}
	}

	return last
}

// programVersion returns the version of this program's module.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}

	return info.Main.Version
}
