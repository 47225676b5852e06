package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

// CardPath is the path of an agent's card: at its origin (A2A 1.0, 8.2), or below its
// base URL.
const CardPath = "/.well-known/agent-card.json"

// oldCardPath is the path of cards before A2A 0.3.
const oldCardPath = "/.well-known/agent.json"

// Bounds of an agent's description of itself, in bytes: a card, a Web of Agents
// document, which may list many agents, and an entity tag, which is kept.
const (
	maxSaid    = 256 << 10
	maxSaidWoA = 4 << 20
	maxTag     = 128
)

// A Source is a place at which agents describe themselves: an A2A card, a Web of Agents
// document, or an MCP server that is initialized (jimenez A.2). It is comparable: agents
// that have the same Source are asked together.
type Source struct {
	Kind directory.Kind // a2a, woa or mcp
	URL  string         // of the document or server; of a card, where its agent is reached
	// Registrant is the identity whose SVID the server may present, beside web PKI's
	// certificates.
	Registrant spiffeid.ID
	// MutualTLS holds the server to that SVID.
	MutualTLS bool
}

// SourceOf returns the place at which an agent describes itself; false if its
// registration names none. The place is at the base, even if the registration names
// others, because clients are sent to the base. Of the protocols that are spoken there,
// the one that describes agents best decides. owner is the verified owner; zero if there is
// none.
func SourceOf(owner spiffeid.ID, doc directory.Document, projection *directory.Projection) (Source, bool) {
	base, err := url.Parse(projection.Base)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil {
		return Source{}, false
	}

	source := Source{Registrant: owner}
	source.MutualTLS = !owner.IsZero() && gateway.DeclaresMutualTLS(projection.Authentication)

	kinds := []directory.Kind{directory.KindA2A, directory.KindMCP, directory.KindWoA}
	if doc.Kind() == directory.KindWoA {
		kinds = kinds[2:]
	}

	for _, source.Kind = range kinds {
		for _, binding := range projection.Bindings {
			at, err := url.Parse(binding.Endpoint)
			switch {
			case source.Kind == directory.KindWoA && (binding.Protocol == "https" || doc.Kind() == directory.KindWoA):
				source.URL = wellKnown(base, crawl.Path)
				return source, true
			case binding.Protocol != string(source.Kind):
			case err != nil || gateway.Authority(at) != gateway.Authority(base):
				source.URL = projection.Base
				return source, true
			default:
				source.URL = binding.Endpoint
				return source, true
			}
		}
	}

	return Source{}, false
}

// wellKnown is a path at a URL's origin.
func wellKnown(u *url.URL, path string) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
}

// places are the URLs at which a source is looked for, in turn.
func (s Source) places() []string {
	target, err := url.Parse(s.URL)
	if s.Kind != directory.KindA2A || err != nil {
		return []string{s.URL}
	}

	below := wellKnown(target, strings.TrimRight(target.Path, "/")+CardPath)

	return slices.Compact([]string{below, wellKnown(target, CardPath), wellKnown(target, oldCardPath)})
}

// Host is the source's location: a host and port that no more than one request at a
// time should go to.
func (s Source) Host() string {
	target, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}

	return gateway.Authority(target)
}

// A Description holds the descriptions that agents give of themselves at a Source.
type Description struct {
	// At is the URL at which it was found, also if it is Unchanged.
	At string
	// Unchanged means that it equals the previous one; there is nothing to Compare.
	Unchanged bool
	// ETag is the entity tag to send with the next request; empty if the server names
	// none.
	ETag string

	kind   directory.Kind
	agents []crawl.Agent      // of a Web of Agents document
	body   []byte             // of a card
	server *gateway.MCPServer // of an MCP server
}

// Fetch fetches the agents' descriptions of themselves at a source. etag is empty or a
// former Description.ETag; an unchanged description is then not sent again. Errors are
// the guard's, gateway.ErrNothingSaid, or of the network.
func Fetch(ctx context.Context, guard *gateway.Guard, source Source, etag string) (*Description, error) {
	if source.Kind == directory.KindMCP {
		server, err := guard.DescribeMCP(ctx, source.URL,
			gateway.Target{Registrant: source.Registrant, MutualTLS: source.MutualTLS})
		if err != nil {
			return nil, err
		}

		return &Description{At: source.URL, kind: directory.KindMCP, server: server}, nil
	}

	var absences []*AbsentError

	for _, place := range source.places() {
		said, err := fetchAt(ctx, guard, source, place, etag)

		var absent *AbsentError
		if err == nil || !errors.As(err, &absent) {
			return said, err
		}

		absences = append(absences, absent)
	}

	return nil, missing(absences)
}

// An AbsentError is that one place answers, and has no description.
type AbsentError struct {
	Place  string // its URL
	Answer string // what it answered
	err    error  // why that is no description; may be nil
}

func (a *AbsentError) Error() string { return a.Place + " answered " + a.Answer }

// Unwrap returns [gateway.ErrNothingSaid] and the cause.
func (a *AbsentError) Unwrap() []error {
	if a.err == nil {
		return []error{gateway.ErrNothingSaid}
	}

	return []error{gateway.ErrNothingSaid, a.err}
}

// missing names each place that was asked, and its answer.
func missing(absences []*AbsentError) error {
	if len(absences) == 1 {
		return absences[0]
	}

	texts, causes := []string{}, []error{gateway.ErrNothingSaid}
	for _, absent := range absences {
		texts = append(texts, absent.Error())
		causes = append(causes, absent)
	}

	return &missingError{strings.Join(texts, "; "), causes}
}

// missingError is that no place has a description.
type missingError struct {
	text   string
	causes []error
}

func (m *missingError) Error() string { return m.text }

// Unwrap returns the causes, [gateway.ErrNothingSaid] among them.
func (m *missingError) Unwrap() []error { return m.causes }

func fetchAt(ctx context.Context, guard *gateway.Guard, source Source, place, etag string) (*Description, error) {
	r, err := http.NewRequest(http.MethodGet, place, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gateway.ErrNothingSaid, err)
	}

	r.Header.Set("Accept", "application/json, application/woa+json")

	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}

	most := int64(maxSaid)
	if source.Kind == directory.KindWoA {
		most = maxSaidWoA
	}

	answer, err := guard.Fetch(ctx, r, gateway.Target{Registrant: source.Registrant, MutualTLS: source.MutualTLS,
		MaxBody: most})

	switch rule := gateway.RuleOf(err); {
	case rule == gateway.RuleRedirect, rule == gateway.RuleSize: // the server answered, with no card
		return nil, &AbsentError{place, "with something else: " + err.Error(), err}
	case err != nil:
		return nil, err
	}

	said := &Description{At: place, ETag: answer.Header.Get("ETag"), kind: source.Kind, body: answer.Body}
	if len(said.ETag) > maxTag {
		said.ETag = ""
	}

	switch {
	case answer.Status == http.StatusNotModified && etag != "":
		said.Unchanged, said.ETag = true, etag
		return said, nil
	case answer.Status != http.StatusOK:
		return nil, &AbsentError{place, "with status " + strconv.Itoa(answer.Status), nil}
	case source.Kind == directory.KindWoA:
		said.agents, err = crawl.Split(answer.URL, answer.Body)
		said.body = nil
	default:
		_, err = directory.ParseDocument(directory.KindA2A, answer.Body)
	}

	if err != nil {
		return nil, &AbsentError{place, "with no description: " + err.Error(), err}
	}

	return said, nil
}
