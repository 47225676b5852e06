package protocol

import (
	"net/url"
	"strconv"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The routes (federation.md, "Pages").
const (
	PathHeads   = "/federation/v1/heads"
	PathKeys    = "/federation/v1/keys"
	PathPages   = "/federation/v1/pages"
	PathRecords = "/federation/v1/records"

	// PathCheckpoint is the route of the checkpoint to which a node has followed another domain's ledger.
	PathCheckpoint = "/federation/v1/checkpoint"
	PathEvidence   = "/federation/v1/evidence"

	// PathFarewell is the route by which a node notifies a peer that its domain has ended
	// the peering.
	PathFarewell = "/federation/v1/farewell"
)

const (
	MaxWait = 60 * time.Second // of a subscription

	// HeaderKeys is the header in answers to subscriptions with the issue of the origin's key
	// document that this node has, as DOMAIN=EPOCH.SEQ. It is set if that issue is later than
	// the caller's.
	HeaderKeys = "Roster-Keys"

	// PingEvery is the interval at which a node that holds a pull sends an interim response
	// (102), if the caller asks for it. minPing is the shortest interval that it serves.
	PingEvery = 3 * time.Second
	minPing   = time.Second

	TypeJOSE   = "application/jose"
	TypeNDJSON = "application/x-ndjson"
)

func ParseOrigin(values url.Values) (spiffeid.TrustDomain, error) {
	td, err := spiffeid.TrustDomainFromString(values.Get("origin"))
	if err != nil || td.Name() != values.Get("origin") {
		return td, directory.Refuse(directory.BadQuery, "origin must be a domain's name, got %q", values.Get("origin"))
	}

	return td, nil
}

type PageQuery struct {
	Origin spiffeid.TrustDomain
	Aud    directory.Audience
	Since  uint64
	Limit  int
	Wait   time.Duration
	Ping   time.Duration       // interval of interim responses during the wait; 0 for none
	Keys   *directory.Position // the issue of the key document that the caller has; nil if it doesn't say
}

func ParsePageQuery(values url.Values) (query PageQuery, err error) {
	if query.Origin, err = ParseOrigin(values); err != nil {
		return query, err
	}

	if query.Aud, err = directory.ParseAudience(values.Get("aud")); err != nil {
		return query, directory.Refuse(directory.BadQuery, "aud must be mesh or a domain's name, got %q",
			values.Get("aud"))
	}

	if v := values.Get("since"); v != "" {
		if query.Since, err = strconv.ParseUint(v, 10, 64); err != nil {
			return query, directory.Refuse(directory.BadQuery, "since must be a revision, got %q", v)
		}
	}

	query.Limit = MaxDigests
	if v := values.Get("limit"); v != "" {
		if query.Limit, err = strconv.Atoi(v); err != nil || query.Limit < 1 || query.Limit > MaxDigests {
			return query, directory.Refuse(directory.BadQuery, "limit must be 1 to %d, got %q", MaxDigests, v)
		}
	}

	if v := values.Get("wait"); v != "" {
		if query.Wait, err = parseWait("wait", v); err != nil {
			return query, err
		}
	}

	if v := values.Get("ping"); v != "" {
		if query.Ping, err = parseWait("ping", v); err != nil {
			return query, err
		}

		if query.Ping > 0 {
			query.Ping = max(query.Ping, minPing)
		}
	}

	if v := values.Get("keys"); v != "" {
		of, issue, err := directory.ParseIndex(v)
		if err != nil || of != query.Origin {
			return query, directory.Refuse(directory.BadQuery,
				"keys must be DOMAIN=EPOCH.SEQ of the origin's key document, got %q", v)
		}

		query.Keys = &issue
	}

	return query, nil
}

// parseWait reads whole seconds or a duration such as 30s.
func parseWait(name, v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if n, err2 := strconv.ParseUint(v, 10, 16); err2 == nil {
		d, err = time.Duration(n)*time.Second, nil
	}

	if err != nil || d < 0 || d > MaxWait {
		return 0, directory.Refuse(directory.BadQuery, "%s must be 0 to %d seconds, got %q", name,
			MaxWait/time.Second, v)
	}

	return d, nil
}

func PullQuery(origin spiffeid.TrustDomain, aud directory.Audience, since uint64) url.Values {
	return url.Values{"origin": {origin.Name()}, "aud": {aud.String()}, "since": {strconv.FormatUint(since, 10)}}
}
