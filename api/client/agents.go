package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
)

// The types of a directory's answers.
type (
	// An Item is one registration in a lookup's answer or in an event of a watch.
	Item = wire.Item
	// A Registration is one registration in full.
	Registration = wire.Registration
	// A Capability is an ability that an agent claims.
	Capability = wire.Capability
	// A CapabilityName is a capability as an item has it.
	CapabilityName = wire.CapabilityName
	// Provenance says where a registration comes from, who vouches for it and how
	// fresh it is.
	Provenance = wire.Provenance
	// Verification is the result of the verification by the directory that answered.
	Verification = wire.Verification
	// A Probe compares a registration with its agent's own description.
	Probe = wire.Probe
	// A Removal is the end of one registration in a watch.
	Removal = wire.Removal
)

// RegisterOptions are the options of a registration besides its document.
type RegisterOptions struct {
	// Lifetime is how long the registration lives without a refresh, in whole
	// seconds; 0 is the directory's default, and less than a minute is refused.
	Lifetime time.Duration
	// Kind is the kind of the document; empty is ad.
	Kind string
	// Visibility is domain, mesh or peers:DOMAIN,…; empty keeps that of a replaced registration, and else is policy's
	// default.
	Visibility string
	// Owner is the identity on whose behalf a commissioning tool registers; empty is
	// the caller.
	Owner string
	// IfMatch is an ETag that the present registration must have; * is any. Otherwise
	// the error is ErrPrecondition.
	IfMatch string
	// IfAbsent refuses to replace a registration, with ErrPrecondition.
	IfAbsent bool
}

// A Registered is the answer to a registration or a refresh.
type Registered struct {
	Reply
	// RID is the id of the registration, and Href its path. A refresh leaves them empty.
	RID, Href string
	// Created is false if a registration was replaced or refreshed.
	Created bool
	// Granted is the lifetime if it is not the one that was asked for; otherwise 0.
	Granted time.Duration
	// Visibility says who outside the domain may see the registration: domain, mesh or
	// peers:DOMAIN,...; empty if the directory doesn't tell.
	Visibility string
}

// Register registers an agent under a name with a document, or replaces the caller's registration of that name
// (draft-jimenez 4.1). It is repeated after failures that may pass, unless it has a condition. The errors are
// ErrConflict if another identity has the name, and ErrInvalid, ErrForbidden or ErrQuota.
func (c *Client) Register(
	ctx context.Context, agent string, document []byte, opt RegisterOptions,
) (*Registered, error) {
	query := url.Values{"agent": {agent}}
	set(query, "kind", opt.Kind)
	set(query, "visibility", opt.Visibility)
	set(query, "owner", opt.Owner)
	setLifetime(query, opt.Lifetime)

	q := &request{
		method: http.MethodPost,
		target: "/ad/r?" + query.Encode(),
		header: http.Header{},
		body:   document,
		repeat: idempotent,
	}
	if opt.IfMatch != "" {
		q.header.Set("If-Match", opt.IfMatch)
	}

	if opt.IfAbsent {
		q.header.Set("If-None-Match", "*")
	}

	if len(q.header) > 0 {
		// The first attempt may have changed the state that the condition requires.
		q.repeat = once
	}

	out, err := c.register(ctx, q)
	if err == nil && out.RID == "" {
		return nil, fmt.Errorf("%w: it does not say where the registration is", ErrAnswer)
	}

	return out, err
}

// Refresh renews a registration by rid, name or path; a lifetime of 0 keeps the
// one that it has (draft-jimenez 4.4). It is ErrNotFound if the registration has
// ended.
func (c *Client) Refresh(ctx context.Context, id string, lifetime time.Duration) (*Registered, error) {
	return c.Update(ctx, id, lifetime, nil)
}

// Update renews a registration and replaces the members that patch, a JSON object,
// has (draft-jimenez 4.4).
func (c *Client) Update(ctx context.Context, id string, lifetime time.Duration, patch []byte) (*Registered, error) {
	query := url.Values{}
	setLifetime(query, lifetime)

	target := withQuery(resource(id), query)

	out, err := c.register(ctx, &request{method: http.MethodPost, target: target, body: patch, repeat: idempotent})
	if err == nil && out.Status != http.StatusNoContent && out.Granted == 0 {
		return nil, fmt.Errorf("%w: it is %d, without a lifetime", ErrAnswer, out.Status)
	}

	return out, err
}

// register sends a registration or a refresh.
func (c *Client) register(ctx context.Context, q *request) (*Registered, error) {
	r, err := c.do(ctx, q)
	if err != nil {
		return nil, err
	}

	out := &Registered{Reply: *r, Href: r.Header.Get("Location"), Created: r.Status == http.StatusCreated,
		Visibility: r.Header.Get(wire.HeaderVisibility)}

	out.RID = out.Href[strings.LastIndexByte(out.Href, '/')+1:]
	if len(r.Body) > 0 {
		var granted wire.Granted
		if err := json.Unmarshal(r.Body, &granted); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
		}

		out.Granted = time.Duration(granted.LifetimeSeconds) * time.Second
	}

	return out, nil
}

// A Renewal asks for a new deadline of one registration.
type Renewal struct {
	// ID is a rid or a name.
	ID string
	// Lifetime is the one that is wanted, in whole seconds; 0 keeps the one that was
	// granted.
	Lifetime time.Duration
}

// A Renewed is the outcome of a Renewal.
type Renewed struct {
	// ID is as it was asked.
	ID string
	// Lifetime was granted; 0 if the renewal was refused.
	Lifetime time.Duration
	// Err is why it was refused, an *Error; nil if it was not.
	Err error
}

// RefreshMany renews registrations, in as many requests as that takes. It returns
// the outcome of each, in their order. If it fails, it returns those that it has.
func (c *Client) RefreshMany(ctx context.Context, items []Renewal) ([]Renewed, error) {
	var all []Renewed
	for len(all) < len(items) {
		body, n, err := renewals(items[len(all):])
		if err != nil {
			return all, err
		}

		r, err := c.do(ctx, &request{method: http.MethodPost, target: "/ad/refresh", body: body, repeat: idempotent})
		if err != nil {
			return all, err
		}

		var outcomes []wire.Renewed
		if err := json.Unmarshal(r.Body, &outcomes); err != nil {
			return all, fmt.Errorf("%w: %w", ErrAnswer, err)
		}

		// Outcomes are matched by their order alone.
		if len(outcomes) != n {
			return all, fmt.Errorf("%w: it has %d registrations, not %d", ErrAnswer, len(outcomes), n)
		}

		for _, o := range outcomes {
			all = append(all, renewed(o))
		}
	}

	return all, nil
}

func renewed(o wire.Renewed) Renewed {
	out := Renewed{ID: o.ID, Lifetime: time.Duration(o.LifetimeSeconds) * time.Second}
	if o.Problem != "" {
		out.Err = &Error{Reply: Reply{Status: o.Status, change: true}, Problem: Problem{Detail: o.Detail},
			Code: o.Problem}
	}

	return out
}

// renewals makes a body of as many items as fit, at least one.
func renewals(items []Renewal) (body []byte, n int, err error) {
	body = []byte{'['}
	for n < min(len(items), wire.MaxRenewals) {
		asked := items[n]

		item, err := json.Marshal(wire.Renewal{ID: asked.ID, LifetimeSeconds: lifetime(asked.Lifetime)})
		if err != nil {
			return nil, 0, err
		}

		if n > 0 {
			// A single item is sent even if it is too large, so that the directory refuses it by name.
			if len(body)+len(item)+len(",]") > wire.MaxBody {
				break
			}

			body = append(body, ',')
		}

		body = append(body, item...)
		n++
	}

	return append(body, ']'), n, nil
}

// Deregister removes a registration by rid, name or path (draft-jimenez 4.5). It is
// ErrNotFound if there is none. It is repeated only after failures without effect:
// a second removal would be refused for the success of the first.
func (c *Client) Deregister(ctx context.Context, id string) (*Reply, error) {
	return c.change(ctx, &request{method: http.MethodDelete, target: resource(id)})
}

// ReadOptions say how fresh the state must be that a read is answered from.
type ReadOptions struct {
	// Consistency is default, stale or linearizable; empty is default.
	Consistency string
	// Min are positions that the answer must include, as Reply.Index has them.
	Min []string
	// Wait is how long the directory waits for Min, in whole seconds: 0 is its
	// default, and negative is not at all.
	Wait time.Duration
}

func (o ReadOptions) set(query url.Values) {
	set(query, "consistency", o.Consistency)

	for _, at := range o.Min {
		query.Add("min", at)
	}

	if o.Wait != 0 {
		query.Set("wait", secondsText(max(o.Wait, 0)))
	}
}

// bound returns how much longer than usual an answer may take.
func (o ReadOptions) bound() time.Duration {
	return min(max(o.Wait, 0), wire.MaxWait*time.Second)
}

// A Resource is one registration in full, and the answer that it came in. The
// answer's body has members of the document that Registration has no field for.
type Resource struct {
	Reply
	Registration
}

// Get reads one registration by rid, name or path (draft-jimenez 4.3). A name that
// several domains have is ErrAmbiguous: Lookup finds them all.
func (c *Client) Get(ctx context.Context, id string) (*Resource, error) {
	return c.GetFresh(ctx, id, ReadOptions{})
}

// GetFresh is Get from a state that is as fresh as opt says.
func (c *Client) GetFresh(ctx context.Context, id string, opt ReadOptions) (*Resource, error) {
	query := url.Values{}
	opt.set(query)

	target := withQuery(resource(id), query)

	r, err := c.do(ctx, &request{method: http.MethodGet, target: target, repeat: idempotent, wait: opt.bound()})
	if err != nil {
		return nil, err
	}

	out := &Resource{Reply: *r}
	if err := decode(r, "href", &out.Registration); err != nil {
		return nil, err
	}

	if visibility := r.Header.Get(wire.HeaderVisibility); visibility != "" {
		out.Provenance.Visibility = visibility
	}

	return out, nil
}

// Record reads a registration's signed record, an SD-JWT. It is not verified here.
func (c *Client) Record(ctx context.Context, id string) (*Reply, error) {
	return c.do(ctx, &request{method: http.MethodGet, target: resource(id) + "/record", repeat: idempotent})
}

// Proof reads a registration's proof file. It is not verified here.
func (c *Client) Proof(ctx context.Context, id string) (*Reply, error) {
	return c.do(ctx, &request{method: http.MethodGet, target: resource(id) + "/proof", repeat: idempotent})
}

// Staple reads a registration's proof file for the agent to carry, which is fresh for 30
// minutes. It is not verified here. The registration is of the directory's own domain.
func (c *Client) Staple(ctx context.Context, id string) (*Reply, error) {
	target := resource(id) + "/proof?format=staple"

	return c.do(ctx, &request{method: http.MethodGet, target: target, repeat: idempotent})
}

// A History has the statements of a registration.
type History = wire.History

// History reads all that was stated of a registration, living or ended, as far as the directory keeps it
// and the caller may see it: the last part of it, or the one to which the cursor Next of another part leads. It is not
// verified here.
func (c *Client) History(ctx context.Context, id, after string) (History, *Reply, error) {
	target := resource(id) + "/history"
	if after != "" {
		target += "?after=" + url.QueryEscape(after)
	}

	return read[History](ctx, c, target, "statements")
}

// An Audience lists the peers that a registration is sent to, or withheld from.
type Audience = wire.Audience

// A Recipient is a peer, and the decision whether it gets a registration.
type Recipient = wire.Recipient

// The reasons why a Recipient does not get a registration.
const (
	WithheldInactive    = wire.WithheldInactive
	WithheldNotExported = wire.WithheldNotExported
	WithheldVisibility  = wire.WithheldVisibility
	WithheldRules       = wire.WithheldRules
	WithheldPolicy      = wire.WithheldPolicy
	WithheldUnconfirmed = wire.WithheldUnconfirmed
)

// Audience reads to which peers a registration of the directory's domain is sent. It is for
// the registration's owner and for operators.
func (c *Client) Audience(ctx context.Context, id string) (Audience, *Reply, error) {
	return read[Audience](ctx, c, resource(id)+"/audience", "peers")
}

// LookupOptions are a lookup's filters (draft-jimenez 5.1). All must match, and so must
// all values of one filter.
type LookupOptions struct {
	ReadOptions
	// Agent is a name, or a prefix followed by *.
	Agent string
	// Origin is a trust domain. Scope is mesh (all domains, the default) or domain (the
	// directory's own).
	Origin, Scope string
	Protocol      []string
	CapName       []string // names of capabilities
	CapType       []string // and their types
	Tag           []string
	Status        []string
	Language      []string
	// Count bounds a page; 0 is the directory's default.
	Count int
	// Page counts from 0, the first page; Next reads the following ones.
	Page int
	// Brief leaves out most of the provenance.
	Brief bool
}

func (o LookupOptions) query() url.Values {
	query := url.Values{}
	set(query, "agent", o.Agent)
	set(query, "origin", o.Origin)
	set(query, "scope", o.Scope)

	filters := map[string][]string{
		"protocol": o.Protocol, "cap_name": o.CapName, "cap_type": o.CapType,
		"tag": o.Tag, "status": o.Status, "language": o.Language,
	}
	for name, values := range filters {
		if len(values) > 0 {
			query[name] = values
		}
	}

	if o.Count > 0 {
		query.Set("count", strconv.Itoa(o.Count))
	}

	if o.Page > 0 {
		query.Set("page", strconv.Itoa(o.Page))
	}

	if o.Brief {
		query.Set("brief", "true")
	}

	o.set(query)

	return query
}

// A Listing is one page of a lookup's answer.
type Listing struct {
	Reply
	Agents []Item
	// Next is the path of the next page; empty on the last one.
	Next string

	wait time.Duration
}

// Lookup finds registrations (draft-jimenez 5).
func (c *Client) Lookup(ctx context.Context, opt LookupOptions) (*Listing, error) {
	return c.listing(ctx, withQuery("/ad/l", opt.query()), opt.bound())
}

// Next reads the page after l; nil if there is none (draft-jimenez 5.3).
func (c *Client) Next(ctx context.Context, listing *Listing) (*Listing, error) {
	if listing.Next == "" {
		return nil, nil
	}

	return c.listing(ctx, listing.Next, listing.wait)
}

func (c *Client) listing(ctx context.Context, target string, wait time.Duration) (*Listing, error) {
	r, err := c.do(ctx, &request{method: http.MethodGet, target: target, repeat: idempotent, wait: wait})
	if err != nil {
		return nil, err
	}

	var body wire.Listing
	if err := decode(r, "agents", &body); err != nil {
		return nil, err
	}

	return &Listing{Reply: *r, Agents: body.Agents, Next: r.NextPage(), wait: wait}, nil
}

// resource returns the path of a rid or a name. A path, such as an href, stays.
func resource(id string) string {
	if strings.HasPrefix(id, "/") {
		return id
	}

	return "/ad/r/" + url.PathEscape(id)
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func setLifetime(query url.Values, d time.Duration) {
	if d != 0 {
		query.Set("lt", secondsText(d))
	}
}

// lifetime returns a duration as the wire has it. The directory refuses one that
// is too short.
func lifetime(d time.Duration) uint32 {
	const longest = 1<<32 - 1
	return uint32(min(max(seconds(d), 0), longest))
}

func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}

	return path + "?" + query.Encode()
}
