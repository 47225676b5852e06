package node

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// Shares of a quota at which the operator is warned, and at which that is over.
const (
	quotaWarns = .9
	quotaCalms = .85
)

// quotasEvery is how often the quotas are looked at.
const quotasEvery = 30 * time.Second

// A quotaUse is how much of one quota is used.
type quotaUse struct {
	name  string // of a small set: the quotas of the domain, and of each peer
	used  uint64
	limit uint64 // 0 for none
}

// share is the part of the quota that is used; 0 where there is none.
func (q quotaUse) share() float64 {
	if q.limit == 0 {
		return 0
	}
	return float64(q.used) / float64(q.limit)
}

// quotaUses are the quotas of the domain.
func quotaUses(s wire.QuotaStatus) []quotaUse {
	return []quotaUse{
		{"limits.registrations_per_domain", s.Registrations, s.RegistrationsLimit},
		{"limits.bytes_per_domain", s.Bytes, s.BytesLimit},
	}
}

// peerQuotaUses are the quotas of what is held of a peer.
func peerQuotaUses(peer string, records, recordsLimit, bytes, bytesLimit uint64) []quotaUse {
	return []quotaUse{
		{"records of " + peer, records, recordsLimit},
		{"bytes of " + peer, bytes, bytesLimit},
	}
}

// quotas is how much of its quotas the domain uses.
func (n *Node) quotas() wire.QuotaStatus {
	q := n.store.Quotas()
	return wire.QuotaStatus{
		Registrations: q.Registrations, RegistrationsLimit: q.RegistrationsLimit,
		Bytes: q.Bytes, BytesLimit: q.BytesLimit,
		Owners: q.Owners, LargestShare: q.LargestShare,
	}
}

// watchQuotas logs a warning once when a quota is nearly used up, until ctx ends.
func (n *Node) watchQuotas(ctx context.Context) {
	warned := map[string]bool{}
	for ctx.Err() == nil {
		uses := quotaUses(n.quotas())
		for _, p := range n.mesh.Peers() {
			uses = append(uses, peerQuotaUses(p.Domain.Name(), p.Records, p.RecordsLimit, p.Bytes, p.BytesLimit)...)
		}
		for _, q := range uses {
			n.warnOfQuota(q, warned)
		}

		select {
		case <-time.After(quotasEvery):
		case <-ctx.Done():
		}
	}
}

func (n *Node) warnOfQuota(q quotaUse, warned map[string]bool) {
	switch share := q.share(); {
	case share >= quotaWarns && !warned[q.name]:
		warned[q.name] = true
		n.log.Warn("a quota is nearly used up; what exceeds it is refused or left out",
			"quota", q.name, "used", q.used, "limit", q.limit)
	case share < quotaCalms && warned[q.name]:
		delete(warned, q.name)
		n.log.Info("a quota has room again", "quota", q.name, "used", q.used, "limit", q.limit)
	}
}
