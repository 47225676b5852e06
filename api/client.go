package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// maxAnswer bounds what a client reads of one answer, in bytes.
const maxAnswer = 64 << 20

// A Client speaks to one node's HTTP surface. It is safe for concurrent use.
// What a node refuses is an *Error; other errors are of the connection.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the node at base (https://HOST:PORT). hc decides
// who the caller is and whom it trusts.
func NewClient(base string, hc *http.Client) *Client {
	return &Client{strings.TrimRight(base, "/"), hc}
}

// do sends one request and reads its answer to the end. A status of 300 and
// above is an *Error, beside the reply.
func (c *Client) do(ctx context.Context, method, target string, header http.Header, body []byte) (*Reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.waits(req.URL.Query().Get("wait")).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(b) > maxAnswer {
		return nil, errors.New("the answer is larger than a directory's can be")
	}
	r := &Reply{resp.StatusCode, resp.Header, b}
	if r.Status >= 300 {
		return r, newError(r)
	}
	return r, nil
}

// waits is the client for a request by which the directory is asked to wait for so many
// seconds: its own bound on an answer's time is beside that.
func (c *Client) waits(seconds string) *http.Client {
	n, err := strconv.ParseUint(seconds, 10, 64)
	if err != nil || c.http.Timeout == 0 {
		return c.http
	}
	hc := *c.http
	hc.Timeout += time.Duration(min(n, maxWait)) * time.Second
	return &hc
}

// patient is the client without a bound on the time that an answer takes; the
// context has one where there is one.
func (c *Client) patient() *http.Client {
	hc := *c.http
	hc.Timeout = 0
	return &hc
}

// read GETs target and decodes the JSON that comes, as decoded does.
func (c *Client) read(ctx context.Context, target, member string, v any) (*Reply, error) {
	r, err := c.do(ctx, http.MethodGet, target, nil, nil)
	return r, decoded(r, err, member, v)
}

// RegisterOptions is what a registration may say besides its document.
type RegisterOptions struct {
	Lifetime   uint32 // seconds; the directory's default where it is 0
	Kind       string // ad where it is empty
	Visibility string // where it is empty, that of what is replaced, or policy's default
	Owner      string // on whose behalf a commissioning tool registers; itself where it is empty
	IfMatch    string // an ETag that the registration must have
}

// A Registered is the answer to a registration or a refresh.
type Registered struct {
	Reply
	RID     string // of a registration
	Href    string // its path
	Created bool   // false: replaced, or refreshed
	Granted uint32 // seconds, where they are fewer than asked for; else 0
}

// Register registers agent with a document, or replaces what it had (jimenez 4.1).
func (c *Client) Register(ctx context.Context, agent string, document []byte, opt RegisterOptions) (*Registered, error) {
	q := url.Values{"agent": {agent}}
	set(q, "kind", opt.Kind)
	set(q, "visibility", opt.Visibility)
	set(q, "owner", opt.Owner)
	setLifetime(q, opt.Lifetime)
	header := http.Header{}
	if opt.IfMatch != "" {
		header.Set("If-Match", opt.IfMatch)
	}
	out, err := registered(c.do(ctx, http.MethodPost, "/ad/r?"+q.Encode(), header, document))
	if err == nil && out.RID == "" {
		return nil, fmt.Errorf("%w: it does not say where the registration is", ErrAnswer)
	}
	return out, err
}

// Refresh renews a registration by rid, name or path; a lifetime of 0 keeps the
// one that it has (jimenez 4.4).
func (c *Client) Refresh(ctx context.Context, id string, lifetime uint32) (*Registered, error) {
	return c.Update(ctx, id, lifetime, nil)
}

// Update renews a registration and puts the members of patch, a JSON object, in
// the place of its own (jimenez 4.4).
func (c *Client) Update(ctx context.Context, id string, lifetime uint32, patch []byte) (*Registered, error) {
	q := url.Values{}
	setLifetime(q, lifetime)
	out, err := registered(c.do(ctx, http.MethodPost, withQuery(path(id), q), nil, patch))
	if err == nil && out.Status != http.StatusNoContent && out.Granted == 0 {
		return nil, fmt.Errorf("%w: it is %d, without a lifetime", ErrAnswer, out.Status)
	}
	return out, err
}

// RefreshMany renews registrations by rid or name, as many as there are: what
// became of each, in their order, also where an error ended it before the last.
func (c *Client) RefreshMany(ctx context.Context, items []Renewal) ([]Renewed, error) {
	var all []Renewed
	for len(all) < len(items) {
		body, n, err := renewals(items[len(all):])
		if err != nil {
			return all, err
		}
		r, err := c.do(ctx, http.MethodPost, "/ad/refresh", nil, body)
		if err != nil {
			return all, err
		}
		var told []Renewed
		if err := json.Unmarshal(r.Body, &told); err != nil {
			return all, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		if len(told) != n {
			return all, fmt.Errorf("%w: it tells of %d registrations, not of %d", ErrAnswer, len(told), n)
		}
		all = append(all, told...)
	}
	return all, nil
}

// renewals makes a body of as many items as go into one, which is at least one.
func renewals(items []Renewal) (body []byte, n int, err error) {
	for n < min(len(items), directory.MaxRenewals) {
		item, err := json.Marshal(items[n])
		if err != nil {
			return nil, 0, err
		}
		if n > 0 && len(body)+len(item)+len(",]") > maxBody {
			break
		}
		body = append(append(body, "[,"[min(n, 1)]), item...)
		n++
	}
	return append(body, ']'), n, nil
}

// Deregister removes a registration by rid, name or path (jimenez 4.5).
func (c *Client) Deregister(ctx context.Context, id string) (*Reply, error) {
	return c.change(ctx, http.MethodDelete, path(id), nil, nil)
}

func registered(r *Reply, err error) (*Registered, error) {
	if err != nil {
		return nil, err
	}
	out := &Registered{Reply: *r, Href: r.Header.Get("Location"), Created: r.Status == http.StatusCreated}
	out.RID = out.Href[strings.LastIndexByte(out.Href, '/')+1:]
	if len(r.Body) > 0 {
		var body struct {
			Lt uint32 `json:"lt"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		out.Granted = body.Lt
	}
	return out, nil
}

// A Registration is what a directory tells of one agent: in full, or as an item
// of a lookup, which lacks what is marked so.
type Registration struct {
	Agent        string       `json:"agent"`
	Name         string       `json:"name"` // not in items
	Base         string       `json:"base"`
	Description  string       `json:"description"`
	Protocols    []string     `json:"protocols"`
	Capabilities []Capability `json:"capabilities"`
	Version      string       `json:"version"` // not in items
	Vendor       string       `json:"vendor"`  // not in items
	Status       string       `json:"status"`  // not in items where it is active
	Href         string       `json:"href"`
	Lifetime     uint32       `json:"lt"`            // seconds; not in items
	ExpiresAt    string       `json:"expires_at"`    // not in items
	RegisteredAt string       `json:"registered_at"` // not in items
	UpdatedAt    string       `json:"updated_at"`    // not in items
	Kind         string       `json:"kind"`          // empty for ad
	Redacted     bool         `json:"redacted"`
	Provenance   Provenance   `json:"provenance"`
}

// RID returns the last segment of Href.
func (r *Registration) RID() string { return r.Href[strings.LastIndexByte(r.Href, '/')+1:] }

// A Capability is what an agent says it can do; items have name and type alone.
type Capability struct {
	Name         string         `json:"name"`
	Type         string         `json:"type"`
	Description  string         `json:"description"`
	Tags         []string       `json:"tags"`
	InputSchema  jsontext.Value `json:"input_schema"`
	OutputSchema jsontext.Value `json:"output_schema"`
}

// Provenance says where a registration comes from and who vouches for it.
type Provenance struct {
	Authority    string `json:"origin_authority"`
	Service      string `json:"origin_service"`
	Href         string `json:"origin_href"`
	Signature    string `json:"origin_signature"`
	Registrant   string `json:"registrant"`
	Revision     uint64 `json:"revision"`
	RegisteredAt string `json:"registered_at"`
	UpdatedAt    string `json:"updated_at"`
	ExpiresAt    string `json:"expires_at"`
	ReceivedAt   string `json:"received_at"`
	ReceivedFrom string `json:"received_from"`
	Visibility   string `json:"visibility"`
	Verification struct {
		State       string `json:"state"`
		Unconfirmed bool   `json:"unconfirmed"` // restored from a backup, and not refreshed since
		Disputed    bool   `json:"disputed"`    // its origin is frozen
		Key         string `json:"key"`
		Logged      bool   `json:"logged"`
		CheckedAt   string `json:"checked_at"`
		Probe       *Probe `json:"probe"` // nil where the agent was not asked
	} `json:"verification"`
}

// A Probe is what asking an agent, at its base, what it says of itself came to:
// verified, mismatch or unreachable (AD-044).
type Probe struct {
	State     string   `json:"state"`
	Members   []string `json:"members"` // in which it differs
	Reason    string   `json:"reason"`  // why nothing was had
	CheckedAt string   `json:"checked_at"`
}

// A Resource is one registration in full, and the answer that told it.
type Resource struct {
	Reply
	Registration
}

// Get reads one registration by rid, name or path (jimenez 4.3).
func (c *Client) Get(ctx context.Context, id string) (*Resource, error) {
	return c.GetFresh(ctx, id, ReadOptions{})
}

// GetFresh is Get from a state that is as fresh as opt says.
func (c *Client) GetFresh(ctx context.Context, id string, opt ReadOptions) (*Resource, error) {
	out := &Resource{}
	q := url.Values{}
	opt.set(q)
	r, err := c.read(ctx, withQuery(path(id), q), "href", &out.Registration)
	if err != nil {
		return nil, err
	}
	out.Reply = *r
	return out, nil
}

// Record reads a registration's signed record, an SD-JWT.
func (c *Client) Record(ctx context.Context, id string) (*Reply, error) {
	return c.do(ctx, http.MethodGet, path(id)+"/record", nil, nil)
}

// Proof reads a registration's proof file.
func (c *Client) Proof(ctx context.Context, id string) (*Reply, error) {
	return c.do(ctx, http.MethodGet, path(id)+"/proof", nil, nil)
}

// ReadOptions say how fresh the state must be that a read is answered from.
type ReadOptions struct {
	Consistency string   // default, stale or linearizable; default where it is empty
	Min         []string // positions that the answer must have, as Reply.Index tells them
	Wait        int      // seconds to wait for Min: 0 for the directory's default, negative for none
}

func (o ReadOptions) set(q url.Values) {
	set(q, "consistency", o.Consistency)
	for _, at := range o.Min {
		q.Add("min", at)
	}
	if o.Wait != 0 {
		q.Set("wait", strconv.Itoa(max(o.Wait, 0)))
	}
}

// LookupOptions are a lookup's filters; all must match (jimenez 5.1).
type LookupOptions struct {
	ReadOptions
	Agent, Origin, Scope                              string
	Protocol, CapName, CapType, Tag, Status, Language []string
	Count, Page                                       int
	Brief                                             bool
}

func (o LookupOptions) query() url.Values {
	q := url.Values{}
	set(q, "agent", o.Agent)
	set(q, "origin", o.Origin)
	set(q, "scope", o.Scope)
	for name, values := range map[string][]string{"protocol": o.Protocol, "cap_name": o.CapName, "cap_type": o.CapType,
		"tag": o.Tag, "status": o.Status, "language": o.Language} {
		if len(values) > 0 {
			q[name] = values
		}
	}
	if o.Count > 0 {
		q.Set("count", strconv.Itoa(o.Count))
	}
	if o.Page > 0 {
		q.Set("page", strconv.Itoa(o.Page))
	}
	if o.Brief {
		q.Set("brief", "true")
	}
	o.set(q)
	return q
}

// A Listing is one page of a lookup's answer.
type Listing struct {
	Reply  `json:"-"`
	Agents []Registration `json:"agents"`
	Next   string         `json:"-"` // path of the next page; empty on the last one
}

// Lookup finds registrations (jimenez 5).
func (c *Client) Lookup(ctx context.Context, opt LookupOptions) (*Listing, error) {
	return c.listing(ctx, withQuery("/ad/l", opt.query()))
}

// Next reads the page behind l; nil where there is none (jimenez 5.3).
func (c *Client) Next(ctx context.Context, l *Listing) (*Listing, error) {
	if l.Next == "" {
		return nil, nil
	}
	return c.listing(ctx, l.Next)
}

func (c *Client) listing(ctx context.Context, target string) (*Listing, error) {
	l := &Listing{}
	r, err := c.read(ctx, target, "agents", l)
	if err != nil {
		return nil, err
	}
	l.Reply = *r
	l.Next = nextOf(r)
	return l, nil
}

// nextOf returns the path of the next page; empty on the last one.
func nextOf(r *Reply) string {
	for _, link := range r.Header.Values("Link") {
		if target, ok := strings.CutSuffix(link, `>; rel="next"`); ok && strings.HasPrefix(target, "</") {
			return target[1:]
		}
	}
	return ""
}

// path is the resource of a rid or a name; what begins with a slash is a path
// already, such as an href.
func path(id string) string {
	if strings.HasPrefix(id, "/") {
		return id
	}
	return "/ad/r/" + url.PathEscape(id)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setLifetime(q url.Values, seconds uint32) {
	if seconds > 0 {
		q.Set("lt", strconv.FormatUint(uint64(seconds), 10))
	}
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
