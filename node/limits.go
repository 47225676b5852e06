package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// Limits bounds what one caller may do: requests per second by the class of what is
// asked for, and registrations owned. 0 is no limit.
type Limits struct {
	Registrations          float64        `yaml:"registrations"`
	Lookups                float64        `yaml:"lookups"`
	Queries                float64        `yaml:"queries"`
	Invocations            float64        `yaml:"invocations"`
	Operations             float64        `yaml:"operations"`
	Federation             float64        `yaml:"federation"`
	Public                 float64        `yaml:"public"`
	RegistrationsPerOwner  uint32         `yaml:"registrations_per_owner"`
	BytesPerOwner          uint64         `yaml:"bytes_per_owner"`
	RegistrationsPerDomain uint64         `yaml:"registrations_per_domain"`
	BytesPerDomain         uint64         `yaml:"bytes_per_domain"`
	RecordsPerPeer         uint64         `yaml:"records_per_peer"`
	BytesPerPeer           uint64         `yaml:"bytes_per_peer"`
	Workers                int            `yaml:"workers"`
	Waiting                int            `yaml:"waiting"`
	Connections            int            `yaml:"connections"`
	ConnectionsPerAddress  int            `yaml:"connections_per_address"`
	Callers                []CallerLimits `yaml:"callers"`
}

// CallerLimits are what holds for some callers instead; what is not given is as for
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

func defaultLimits() Limits {
	return Limits{
		Registrations: 50, Lookups: 500, Queries: 50, Invocations: 50, Operations: 50, Federation: 1000, Public: 200,
		RegistrationsPerOwner: 10_000, BytesPerOwner: 16 << 20,
		RegistrationsPerDomain: 1_000_000, BytesPerDomain: 4 << 30,
		RecordsPerPeer: 1_000_000, BytesPerPeer: 4 << 30,
		Connections: 1 << 15,
	}
}

// Bounds of what an operator may ask for.
const (
	maxRate        = 1_000_000 // per second
	maxCallers     = 256       // of limits.callers
	maxConnections = 1 << 20
	minConnections = 64
	maxWorkers     = 1 << 14
	maxWaiting     = 1 << 20
	maxBytes       = 1 << 50
)

// Registrations from a source that is followed belong to an account of their own, which
// has this much room where others have limits.bytes_per_owner.
const (
	sourceAccounts = "/roster/source/*"
	bytesPerSource = 256 << 20
)

// A rated is one rate of a configuration, and the class of routes that it is for.
type rated struct {
	key       string
	class     api.Class
	perSecond *float64
}

func (l *Limits) rates() []rated {
	return ratesOf(&l.Registrations, &l.Lookups, &l.Queries, &l.Invocations, &l.Operations, &l.Federation, &l.Public)
}

func (l *CallerLimits) rates() []rated {
	return ratesOf(l.Registrations, l.Lookups, l.Queries, l.Invocations, l.Operations, l.Federation, l.Public)
}

// ratesOf returns those that are given.
func ratesOf(registrations, lookups, queries, invocations, operations, federation, public *float64) []rated {
	return slices.DeleteFunc([]rated{
		{"registrations", api.Writes, registrations}, {"lookups", api.Reads, lookups}, {"queries", api.Queries, queries},
		{"invocations", api.Invocations, invocations}, {"operations", api.Operations, operations},
		{"federation", api.Federation, federation}, {"public", api.Public, public},
	}, func(r rated) bool { return r.perSecond == nil })
}

func checkRates(at string, rates []rated) error {
	for _, r := range rates {
		if !(*r.perSecond >= 0 && *r.perSecond <= maxRate) {
			return fmt.Errorf("%s.%s: %v is no number of requests per second from 0 to %d", at, r.key, *r.perSecond, maxRate)
		}
	}
	return nil
}

func apiLimits(rates []rated) api.Limits {
	l := api.Limits{}
	for _, r := range rates {
		l[r.class] = *r.perSecond
	}
	return l
}

func (c *Config) validateLimits() error {
	l := &c.Limits
	if err := checkRates("limits", l.rates()); err != nil {
		return err
	}
	switch {
	case l.Connections != 0 && (l.Connections < minConnections || l.Connections > maxConnections):
		return fmt.Errorf("limits.connections: %d is neither 0 nor from %d to %d", l.Connections, minConnections, maxConnections)
	case l.Workers < 0 || l.Workers > maxWorkers:
		return fmt.Errorf("limits.workers: must be from 0 to %d, got %d", maxWorkers, l.Workers)
	case l.Waiting < 0 || l.Waiting > maxWaiting:
		return fmt.Errorf("limits.waiting: must be from 0 to %d, got %d", maxWaiting, l.Waiting)
	case l.ConnectionsPerAddress < 0 || l.ConnectionsPerAddress > maxConnections:
		return fmt.Errorf("limits.connections_per_address: %d is not from 0 to %d", l.ConnectionsPerAddress, maxConnections)
	case l.BytesPerOwner > maxBytes:
		return fmt.Errorf("limits.bytes_per_owner: must be from 0 to %d, got %d", uint64(maxBytes), l.BytesPerOwner)
	case l.BytesPerDomain > maxBytes:
		return fmt.Errorf("limits.bytes_per_domain: must be from 0 to %d, got %d", uint64(maxBytes), l.BytesPerDomain)
	case l.RegistrationsPerDomain > maxBytes:
		return fmt.Errorf("limits.registrations_per_domain: must be from 0 to %d, got %d", uint64(maxBytes), l.RegistrationsPerDomain)
	case l.RecordsPerPeer > maxBytes:
		return fmt.Errorf("limits.records_per_peer: must be from 0 to %d, got %d", uint64(maxBytes), l.RecordsPerPeer)
	case l.BytesPerPeer > maxBytes:
		return fmt.Errorf("limits.bytes_per_peer: must be from 0 to %d, got %d", uint64(maxBytes), l.BytesPerPeer)
	case len(l.Callers) > maxCallers:
		return fmt.Errorf("limits.callers: %d are given; at most %d are", len(l.Callers), maxCallers)
	case c.Lifetimes.Min < directory.MinLifetime || c.Lifetimes.Min > c.Lifetimes.Max:
		return fmt.Errorf("lifetimes.min: %d s is not from %d s to lifetimes.max", c.Lifetimes.Min, directory.MinLifetime)
	}
	for i := range l.Callers {
		if err := l.Callers[i].validate(fmt.Sprintf("limits.callers[%d]", i), c.Lifetimes); err != nil {
			return err
		}
	}
	return nil
}

// methods are the ways to show who one is, as CallerLimits.By has them.
var methods = []string{trust.MethodSVID, trust.MethodWPT, trust.MethodOAuth, trust.MethodBearer, trust.MethodJWTSVID, api.MethodNone}

func (l *CallerLimits) validate(at string, all Lifetimes) error {
	if err := checkRates(at, l.rates()); err != nil {
		return err
	}
	for _, by := range l.By {
		if !slices.Contains(methods, by) {
			return fmt.Errorf("%s.by: %q is none of %v", at, by, methods)
		}
	}
	shortest, longest := max(l.MinLifetime, all.Min), all.Max
	if l.MaxLifetime > 0 {
		longest = min(longest, l.MaxLifetime)
	}
	switch {
	case l.Who.IsZero() && len(l.By) == 0:
		return fmt.Errorf("%s: it has neither who nor by, so it is for all: change the limits themselves", at)
	case !l.Who.IsZero() && slices.Contains(l.By, api.MethodNone):
		return fmt.Errorf("%s.by: %q is nobody, who is not %s", at, api.MethodNone, l.Who)
	case l.MinLifetime > 0 && l.MinLifetime < directory.MinLifetime, shortest > longest:
		return fmt.Errorf("%s.min_lifetime: from %d s to %d s there is none of at least %d s", at, shortest, longest, directory.MinLifetime)
	case l.RegistrationsPerOwner != nil && (l.Who.IsZero() || len(l.By) > 0):
		return fmt.Errorf("%s.registrations_per_owner: it is an identity's, however that was shown: give who, and not by", at)
	case l.BytesPerOwner != nil && (l.Who.IsZero() || len(l.By) > 0):
		return fmt.Errorf("%s.bytes_per_owner: it is an identity's, however that was shown: give who, and not by", at)
	case l.BytesPerOwner != nil && *l.BytesPerOwner > maxBytes:
		return fmt.Errorf("%s.bytes_per_owner: must be from 0 to %d, got %d", at, uint64(maxBytes), *l.BytesPerOwner)
	}
	return nil
}

// terms are what the API holds some callers to.
func (l *Limits) terms() []api.Terms {
	list := make([]api.Terms, len(l.Callers))
	for i := range l.Callers {
		c := &l.Callers[i]
		list[i] = api.Terms{Who: c.Who, By: c.By, Limits: apiLimits(c.rates()), MinLifetime: c.MinLifetime, MaxLifetime: c.MaxLifetime}
	}
	return list
}

// rules are the quotas and the rules for names, as the domain's leader decrees them.
func (c *Config) rules() consensus.Rules {
	l := &c.Limits
	r := consensus.Rules{
		Hold:          uint32(c.Names.Hold / time.Second),
		PerOwner:      l.RegistrationsPerOwner,
		BytesPerOwner: l.BytesPerOwner,
		Registrations: l.RegistrationsPerDomain,
		Bytes:         l.BytesPerDomain,
	}

	for i := range l.Callers {
		caller := &l.Callers[i]
		if most := caller.RegistrationsPerOwner; most != nil {
			r.Owners = append(r.Owners, consensus.OwnerRule{Who: caller.Who, Most: uint64(*most)})
		}
		if most := caller.BytesPerOwner; most != nil {
			r.OwnersBytes = append(r.OwnersBytes, consensus.OwnerRule{Who: caller.Who, Most: *most})
		}
	}

	// Behind those of the configuration, which come first.
	sources, err := directory.ParseIdentityPattern(c.TrustDomain.IDString() + sourceAccounts)
	if err == nil && l.BytesPerOwner > 0 && l.BytesPerOwner < bytesPerSource {
		r.OwnersBytes = append(r.OwnersBytes, consensus.OwnerRule{Who: sources, Most: bytesPerSource})
	}
	return r
}
