package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/federation"
)

// QuotaWarning is the share of a quota at which the operator is warned.
const QuotaWarning = .9

// quotaRecovery is the share of a quota below which the warning ends.
const quotaRecovery = .85

// quotaInterval is the time between two checks.
const quotaInterval = 30 * time.Second

// A QuotaUse is how much of one quota is used.
type QuotaUse struct {
	Name  string // of a small set: the quotas of the domain, and of each peer
	Used  uint64
	Limit uint64 // 0 for none
}

// Share is the part of the quota that is used; 0 if there is no quota.
func (q QuotaUse) Share() float64 {
	if q.Limit == 0 {
		return 0
	}

	return float64(q.Used) / float64(q.Limit)
}

// DomainQuotas returns the quotas of the domain, and how much of each is used.
func DomainQuotas(status wire.QuotaStatus) []QuotaUse {
	return []QuotaUse{
		{"limits.registrations_per_domain", status.Registrations, status.RegistrationsLimit},
		{"limits.bytes_per_domain", status.Bytes, status.BytesLimit},
	}
}

// PeerQuotas returns the quotas on a peer's stored records, and the use of each.
func PeerQuotas(peer string, records, recordsLimit, bytes, bytesLimit uint64) []QuotaUse {
	return []QuotaUse{
		{"records of " + peer, records, recordsLimit},
		{"bytes of " + peer, bytes, bytesLimit},
	}
}

// QuotaStatus returns the use of the domain's quotas.
func QuotaStatus(store *consensus.Store) wire.QuotaStatus {
	quotas := store.Quotas()

	return wire.QuotaStatus{
		Registrations:      quotas.Registrations,
		RegistrationsLimit: quotas.RegistrationsLimit,
		Bytes:              quotas.Bytes,
		BytesLimit:         quotas.BytesLimit,
		Owners:             quotas.Owners,
		LargestShare:       quotas.LargestShare,
	}
}

// A quotaMonitor logs once when a quota is nearly exhausted, and once when it no longer is.
type quotaMonitor struct {
	uses func() []QuotaUse
	log  *slog.Logger

	warned map[string]bool // by name of the quota
}

// WatchQuotas checks the quotas until ctx ends, and logs once when one is nearly used up and
// once when it has room again.
func WatchQuotas(ctx context.Context, log *slog.Logger, uses func() []QuotaUse) {
	m := &quotaMonitor{uses: uses, log: log, warned: map[string]bool{}}
	for ctx.Err() == nil {
		for _, use := range m.uses() {
			m.check(use)
		}

		select {
		case <-time.After(quotaInterval):
		case <-ctx.Done():
		}
	}
}

func (m *quotaMonitor) check(use QuotaUse) {
	switch share := use.Share(); {
	case share >= QuotaWarning && !m.warned[use.Name]:
		m.warned[use.Name] = true
		m.log.Warn("a quota is nearly used up; registrations and records beyond it are refused",
			"quota", use.Name, "used", use.Used, "limit", use.Limit)
	case share < quotaRecovery && m.warned[use.Name]:
		delete(m.warned, use.Name)
		m.log.Info("a quota has room again", "quota", use.Name, "used", use.Used, "limit", use.Limit)
	}
}

// QuotaUses returns the use of the domain's quotas and of those of its peers.
func QuotaUses(store *consensus.Store, mesh *federation.Mesh) []QuotaUse {
	uses := DomainQuotas(QuotaStatus(store))
	for _, p := range mesh.Peers() {
		uses = append(uses, PeerQuotas(p.Domain.Name(), p.Records, p.RecordsLimit, p.Bytes, p.BytesLimit)...)
	}

	return uses
}
