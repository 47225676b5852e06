package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/admission"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/credentials"
)

const (
	maxRate        = 1_000_000 // requests per second
	maxCallers     = 256       // entries of limits.callers
	minConnections = 64
	maxConnections = 1 << 20
	maxWorkers     = 1 << 14
	maxWaiting     = 1 << 20
	maxQuota       = 1 << 50 // bytes or registrations
	minAtOnce      = 64      // places of a pool: an address has a sixteenth
	maxAtOnce      = 1 << 20
	minPoolBytes   = 64 << 20 // a stranger's sixteenth takes the largest bodies
	maxPoolBytes   = 1 << 40
)

// Limits bounds the use by one caller, one owner, one peer and all of them. 0 means no
// limit.
type Limits struct {
	Registrations          float64        `yaml:"registrations" reload:"yes"`
	Lookups                float64        `yaml:"lookups" reload:"yes"`
	Queries                float64        `yaml:"queries" reload:"yes"`
	Invocations            float64        `yaml:"invocations" reload:"yes"`
	Operations             float64        `yaml:"operations" reload:"yes"`
	Federation             float64        `yaml:"federation" reload:"yes"`
	Public                 float64        `yaml:"public" reload:"yes"`
	RegistrationsPerOwner  uint32         `yaml:"registrations_per_owner" reload:"yes"`
	BytesPerOwner          uint64         `yaml:"bytes_per_owner" reload:"yes"`
	RegistrationsPerDomain uint64         `yaml:"registrations_per_domain" reload:"yes"`
	BytesPerDomain         uint64         `yaml:"bytes_per_domain" reload:"yes"`
	RecordsPerPeer         uint64         `yaml:"records_per_peer"`
	BytesPerPeer           uint64         `yaml:"bytes_per_peer"`
	Workers                int            `yaml:"workers"`
	Waiting                int            `yaml:"waiting"`
	Connections            int            `yaml:"connections"`
	ConnectionsPerAddress  int            `yaml:"connections_per_address"`
	RequestsAtOnce         int            `yaml:"requests_at_once"`
	WatchesAtOnce          int            `yaml:"watches_at_once"`
	InvocationsAtOnce      int            `yaml:"invocations_at_once"`
	RequestBytes           int64          `yaml:"request_bytes"`
	AnswerBytes            int64          `yaml:"answer_bytes"`
	Callers                []CallerLimits `yaml:"callers" reload:"yes"`
}

// CallerLimits replace the limits for some callers; those that are not given are as for
// all.
type CallerLimits struct {
	Who                   directory.IdentityPattern `yaml:"who"`
	By                    []string                  `yaml:"by"`
	Registrations         *float64                  `yaml:"registrations,omitempty"`
	Lookups               *float64                  `yaml:"lookups,omitempty"`
	Queries               *float64                  `yaml:"queries,omitempty"`
	Invocations           *float64                  `yaml:"invocations,omitempty"`
	Operations            *float64                  `yaml:"operations,omitempty"`
	Federation            *float64                  `yaml:"federation,omitempty"`
	Public                *float64                  `yaml:"public,omitempty"`
	RegistrationsPerOwner *uint32                   `yaml:"registrations_per_owner,omitempty"`
	BytesPerOwner         *uint64                   `yaml:"bytes_per_owner,omitempty"`
	MinLifetime           uint32                    `yaml:"min_lifetime,omitempty"`
	MaxLifetime           uint32                    `yaml:"max_lifetime,omitempty"`
}

// A rate is one rate of a section; value is nil if it is not given.
type rate struct {
	key   string
	class admission.Class
	value *float64
}

type rates []rate

func (l *Limits) rates() rates {
	return rates{
		{"registrations", admission.Writes, &l.Registrations},
		{"lookups", admission.Reads, &l.Lookups},
		{"queries", admission.Queries, &l.Queries},
		{"invocations", admission.Invocations, &l.Invocations},
		{"operations", admission.Operations, &l.Operations},
		{"federation", admission.Federation, &l.Federation},
		{"public", admission.Public, &l.Public},
	}
}

func (l *CallerLimits) rates() rates {
	return rates{
		{"registrations", admission.Writes, l.Registrations},
		{"lookups", admission.Reads, l.Lookups},
		{"queries", admission.Queries, l.Queries},
		{"invocations", admission.Invocations, l.Invocations},
		{"operations", admission.Operations, l.Operations},
		{"federation", admission.Federation, l.Federation},
		{"public", admission.Public, l.Public},
	}
}

// byClass returns the rates that are given, in requests per second; 0 is no limit.
func (r rates) byClass() admission.Limits {
	limits := admission.Limits{}

	for _, each := range r {
		if each.value != nil {
			limits[each.class] = *each.value
		}
	}

	return limits
}

// validate checks the rates under a key.
func (r rates) validate(report *report, at string) {
	for _, each := range r {
		// Written so that NaN is refused.
		report.require(each.value == nil || *each.value >= 0 && *each.value <= maxRate, at+"."+each.key,
			"must be from 0 to %d requests per second, got %v", maxRate, deref(each.value))
	}
}

// deref returns a value for a message.
func deref(value *float64) float64 {
	if value == nil {
		return 0
	}

	return *value
}

// Rates returns the rates for all callers.
func (l *Limits) Rates() admission.Limits { return l.rates().byClass() }

// CallerTerms returns the limits of the callers with limits of their own.
func (l *Limits) CallerTerms() []admission.CallerLimits {
	terms := make([]admission.CallerLimits, len(l.Callers))

	for i := range l.Callers {
		caller := &l.Callers[i]
		terms[i] = admission.CallerLimits{
			Who:         caller.Who,
			By:          caller.By,
			Limits:      caller.rates().byClass(),
			MinLifetime: caller.MinLifetime,
			MaxLifetime: caller.MaxLifetime,
		}
	}

	return terms
}

// Sizes returns the sizes of the pools that callers of the API share.
func (l *Limits) Sizes() admission.Sizes {
	return admission.Sizes{
		Requests:     l.RequestsAtOnce,
		Watches:      l.WatchesAtOnce,
		Invocations:  l.InvocationsAtOnce,
		RequestBytes: l.RequestBytes,
		AnswerBytes:  l.AnswerBytes,
	}
}

func defaultLimits() Limits {
	return Limits{
		Registrations:          50,
		Lookups:                500,
		Queries:                50,
		Invocations:            50,
		Operations:             50,
		Federation:             1000,
		Public:                 200,
		RegistrationsPerOwner:  10_000,
		BytesPerOwner:          16 << 20,
		RegistrationsPerDomain: 1_000_000,
		BytesPerDomain:         4 << 30,
		RecordsPerPeer:         defaultPeerRecords,
		BytesPerPeer:           defaultPeerBytes,
		Connections:            1 << 15,
		RequestsAtOnce:         admission.DefaultSizes.Requests,
		WatchesAtOnce:          admission.DefaultSizes.Watches,
		InvocationsAtOnce:      admission.DefaultSizes.Invocations,
		RequestBytes:           admission.DefaultSizes.RequestBytes,
		AnswerBytes:            admission.DefaultSizes.AnswerBytes,
	}
}

// The default quotas of a peer are for a node with 16 GiB of memory or more.
const (
	defaultPeerRecords = 1_000_000
	defaultPeerBytes   = 4 << 30
	leastPeerRecords   = 1024
	leastPeerBytes     = 4 << 20
	memoryPerRecord    = 4 << 10 // of a record in memory, with its part of the indices
	peerShare          = 4       // divides the memory limit: a peer's records take a quarter
)

// PeerQuotas returns the quotas of records of a peer and of their bytes, at a node with a memory limit in bytes; 0 for
// no limit. A quota that differs from its default holds, however little memory there is.
func (l *Limits) PeerQuotas(memoryLimit int64) (records, bytes uint64) {
	records, bytes = l.RecordsPerPeer, l.BytesPerPeer
	if memoryLimit <= 0 {
		return records, bytes
	}

	share := uint64(memoryLimit) / peerShare
	if records == defaultPeerRecords {
		records = min(records, max(leastPeerRecords, share/memoryPerRecord))
	}

	if bytes == defaultPeerBytes {
		bytes = min(bytes, max(leastPeerBytes, share))
	}

	return records, bytes
}

func (l *Limits) validate(r *report, lifetimes Lifetimes) {
	l.rates().validate(r, "limits")
	r.require(l.Connections == 0 || l.Connections >= minConnections && l.Connections <= maxConnections,
		"limits.connections", "must be 0 or from %d to %d, got %d", minConnections, maxConnections, l.Connections)
	r.require(l.ConnectionsPerAddress >= 0 && l.ConnectionsPerAddress <= maxConnections,
		"limits.connections_per_address", "must be from 0 to %d, got %d", maxConnections, l.ConnectionsPerAddress)
	r.require(l.Workers >= 0 && l.Workers <= maxWorkers, "limits.workers", "must be from 0 to %d, got %d", maxWorkers,
		l.Workers)
	r.require(l.Waiting >= 0 && l.Waiting <= maxWaiting, "limits.waiting", "must be from 0 to %d, got %d", maxWaiting,
		l.Waiting)
	r.require(len(l.Callers) <= maxCallers, "limits.callers", "at most %d are allowed, got %d", maxCallers,
		len(l.Callers))
	l.validatePools(r)

	for _, quota := range []struct {
		key   string
		value uint64
	}{
		{"bytes_per_owner", l.BytesPerOwner},
		{"bytes_per_domain", l.BytesPerDomain},
		{"registrations_per_domain", l.RegistrationsPerDomain},
		{"records_per_peer", l.RecordsPerPeer},
		{"bytes_per_peer", l.BytesPerPeer},
	} {
		r.require(quota.value <= maxQuota, "limits."+quota.key, "must be from 0 to %d, got %d", uint64(maxQuota),
			quota.value)
	}

	for i := range l.Callers {
		l.Callers[i].validate(r, fmt.Sprintf("limits.callers[%d]", i), lifetimes)
	}
}

// Pools returns the limits without rates, quotas and connections: the pools of resources
// that callers hold at once.
func (l *Limits) Pools() Limits {
	return Limits{
		RequestsAtOnce: l.RequestsAtOnce, WatchesAtOnce: l.WatchesAtOnce, InvocationsAtOnce: l.InvocationsAtOnce,
		RequestBytes: l.RequestBytes, AnswerBytes: l.AnswerBytes,
	}
}

func (l *Limits) validatePools(r *report) {
	for _, pool := range []struct {
		key    string
		places int
	}{
		{"requests_at_once", l.RequestsAtOnce},
		{"watches_at_once", l.WatchesAtOnce},
		{"invocations_at_once", l.InvocationsAtOnce},
	} {
		r.require(pool.places >= minAtOnce && pool.places <= maxAtOnce, "limits."+pool.key,
			"must be from %d to %d, got %d", minAtOnce, maxAtOnce, pool.places)
	}

	for _, pool := range []struct {
		key   string
		bytes int64
	}{
		{"request_bytes", l.RequestBytes},
		{"answer_bytes", l.AnswerBytes},
	} {
		r.require(pool.bytes >= minPoolBytes && pool.bytes <= maxPoolBytes, "limits."+pool.key,
			"must be from %d to %d, got %d", int64(minPoolBytes), int64(maxPoolBytes), pool.bytes)
	}
}

// authMethods are the ways to authenticate, as CallerLimits.By names them.
var authMethods = []string{
	credentials.MethodSVID, credentials.MethodWPT, credentials.MethodOAuth, credentials.MethodBearer,
	credentials.MethodJWTSVID, admission.MethodNone,
}

func (l *CallerLimits) validate(r *report, at string, lifetimes Lifetimes) {
	l.rates().validate(r, at)

	for _, by := range l.By {
		r.require(slices.Contains(authMethods, by), at+".by", "must be of %s, got %q", strings.Join(authMethods, ", "),
			by)
	}

	shortest := max(l.MinLifetime, lifetimes.Min)
	longest := lifetimes.Max

	if l.MaxLifetime > 0 {
		longest = min(longest, l.MaxLifetime)
	}

	r.require(!l.Who.IsZero() || len(l.By) > 0, at,
		"it has neither who nor by, so it is for all callers: change the limits themselves")
	r.require(l.Who.IsZero() || !slices.Contains(l.By, admission.MethodNone), at+".by",
		"%q is for callers without an identity, which can't match %s", admission.MethodNone, l.Who)
	r.require((l.MinLifetime == 0 || l.MinLifetime >= directory.MinLifetime) && shortest <= longest, at+".min_lifetime",
		"no lifetime of at least %d s is from %d s to %d s", directory.MinLifetime, shortest, longest)
	l.validateQuotas(r, at)
}

func (l *CallerLimits) validateQuotas(r *report, at string) {
	const byIdentity = "quotas are by identity: give who, and not by"

	forIdentity := !l.Who.IsZero() && len(l.By) == 0

	r.require(l.RegistrationsPerOwner == nil || forIdentity, at+".registrations_per_owner", byIdentity)
	r.require(l.BytesPerOwner == nil || forIdentity, at+".bytes_per_owner", byIdentity)

	if quota := l.BytesPerOwner; quota != nil {
		r.require(*quota <= maxQuota, at+".bytes_per_owner", "must be from 0 to %d, got %d", uint64(maxQuota), *quota)
	}
}
