package node

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// QuotaWarning is the share of a quota at which the operator is warned.
const QuotaWarning = .9

// quotaCalms is the share of a quota below which the warning is over.
const quotaCalms = .85

// quotasEvery is how often the quotas are looked at.
const quotasEvery = 30 * time.Second

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
func DomainQuotas(s wire.QuotaStatus) []QuotaUse {
	return []QuotaUse{
		{"limits.registrations_per_domain", s.Registrations, s.RegistrationsLimit},
		{"limits.bytes_per_domain", s.Bytes, s.BytesLimit},
	}
}

// PeerQuotas returns the quotas of what is held of a peer, and how much of each is used.
func PeerQuotas(peer string, records, recordsLimit, bytes, bytesLimit uint64) []QuotaUse {
	return []QuotaUse{
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
		uses := DomainQuotas(n.quotas())
		for _, p := range n.mesh.Peers() {
			uses = append(uses, PeerQuotas(p.Domain.Name(), p.Records, p.RecordsLimit, p.Bytes, p.BytesLimit)...)
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

func (n *Node) warnOfQuota(q QuotaUse, warned map[string]bool) {
	switch share := q.Share(); {
	case share >= QuotaWarning && !warned[q.Name]:
		warned[q.Name] = true
		n.log.Warn("a quota is nearly used up; what exceeds it is refused or left out",
			"quota", q.Name, "used", q.Used, "limit", q.Limit)
	case share < quotaCalms && warned[q.Name]:
		delete(warned, q.Name)
		n.log.Info("a quota has room again", "quota", q.Name, "used", q.Used, "limit", q.Limit)
	}
}
