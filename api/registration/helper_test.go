package registration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
)

var (
	tool = directory.IdentityOf(spiffeid.RequireFromPath(directorytest.Alpha, "/tool/commissioner"))
	eve  = directory.IdentityOf(spiffeid.RequireFromPath(directorytest.Alpha, "/agent/eve"))
)

// A leader stands for the domain's leader: it notes what it is asked for, and answers from a queue.
type leader struct {
	registers []directory.RegisterRequest
	refreshes []directory.RefreshRequest
	removes   []directory.RemoveRequest
	outcome   directory.Outcome
	errs      []error // of the next requests
	// caughtUp is called when this node is to know all that was acknowledged.
	caughtUp    func() error
	linearizing int
}

func (l *leader) next() (directory.Outcome, error) {
	if len(l.errs) == 0 {
		return l.outcome, nil
	}

	err := l.errs[0]
	l.errs = l.errs[1:]

	return l.outcome, err
}

func (l *leader) Register(_ context.Context, r directory.RegisterRequest) (directory.Outcome, error) {
	l.registers = append(l.registers, r)
	return l.next()
}

func (l *leader) Refresh(_ context.Context, r directory.RefreshRequest) (directory.Outcome, error) {
	l.refreshes = append(l.refreshes, r)
	return l.next()
}

func (l *leader) Remove(_ context.Context, r directory.RemoveRequest) (directory.Outcome, error) {
	l.removes = append(l.removes, r)
	return l.next()
}

func (l *leader) Linearize(context.Context) error {
	l.linearizing++
	if l.caughtUp == nil {
		return nil
	}

	return l.caughtUp()
}

// rules hide agents called secret from all but their owners, withhold the vendor and, but for one agent, who registered
// it, and reserve names.
type rules struct {
	access.Policy
	version *uint64
}

func (rules) Register(_ directory.Identity, agent string, _ *directory.Projection,
	visibility directory.Visibility) directory.Decision {
	return directory.Decision{Allow: !strings.HasPrefix(agent, "reserved") && len(visibility.Peers) < 3}
}

func (r rules) Renew(e *directory.Entry) directory.Decision {
	return r.Register(e.Owner, e.Agent, nil, e.Visibility)
}

func (rules) OnBehalf(_, _ directory.Identity, _ string, _ *directory.Projection,
	_ directory.Visibility) directory.Decision {
	return directory.Decision{Allow: true}
}

func (rules) Read(_ directory.Identity, e *directory.Entry) directory.Decision {
	withheld := []string{"vendor", directory.MemberRegistrant}
	if e.Agent == "foreign" {
		withheld = withheld[:1]
	}

	return directory.Decision{Allow: !strings.HasPrefix(e.Agent, "secret"), Redaction: directory.Withhold(withheld...)}
}

func (rules) Inside(id directory.Identity) bool     { return id.MemberOf(directorytest.Alpha) }
func (rules) Commission(id directory.Identity) bool { return id == tool }
func (r rules) Version() uint64                     { return *r.version }

// A node is a Writer, and its Reader, over a view.
type node struct {
	*Writer
	leader  *leader
	version uint64
	offer   directory.Offer
}

func newNode(entries ...*directory.Entry) *node {
	directoryView := index.NewView(directorytest.Alpha)
	n := &node{leader: &leader{}}
	guard := access.NewGuard(directorytest.Alpha, rules{version: &n.version}, directoryView)
	mesh := func() directory.Visibility { return directory.Visibility{Mesh: true} }

	n.Writer = &Writer{
		Domain: directorytest.Alpha, Registry: n.leader, DefaultVisibility: mesh,
		IsPeer: func(td spiffeid.TrustDomain) bool { return td == directorytest.Beta },
		Reader: &Reader{
			View: directoryView, Guard: guard,
			Render: view.NewRenderer(view.Config{
				Domain: directorytest.Alpha, PublicURL: "https://alpha.test", DefaultVisibility: mesh,
				Frozen: func() []spiffeid.TrustDomain { return nil },
				Service: func(td spiffeid.TrustDomain) string {
					return map[bool]string{true: "https://beta.test"}[td == directorytest.Beta]
				},
			}),
			Position: func(td spiffeid.TrustDomain) (directory.Position, bool) {
				return directory.Position{Epoch: 1, Revision: 2}, td != directorytest.Gamma
			},
			Offer: func(rid directory.RID) (directory.Offer, bool) { return n.offer, rid == n.offer.RID },
		},
	}

	for _, entry := range entries {
		n.put(entry)
	}

	return n
}

func (n *node) put(entry *directory.Entry) {
	n.Reader.View.Origin(entry.Origin).Put(entry)
}

// entry returns a living registration of Ada's.
func entry(t *testing.T, origin spiffeid.TrustDomain, n byte, agent string) *directory.Entry {
	t.Helper()

	document := directorytest.Document(t, directory.KindAD, `{"base":"https://a.test","vendor":"v"}`)
	e := &directory.Entry{
		Origin: origin, RID: directorytest.RID(n), Agent: agent, Owner: directorytest.Ada, Document: document,
		Packed:  directory.Pack(document, directorytest.Project(t, agent, document)),
		Created: uint64(n), Revision: uint64(n), Statement: uint64(n), Lifetime: 600,
		ExpiresAt: time.Now().Add(time.Hour).UnixMilli(),
	}

	if origin != directorytest.Alpha {
		e.Received = &directory.Received{From: origin}
	}

	return e
}

// callBy returns a call of one registration by an identity.
func callBy(who directory.Identity, name Name, query string, header ...string) *request.Call {
	r := httptest.NewRequest(http.MethodPost, "/ad/r/"+name.ID, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	return &request.Call{
		Request: r, Identity: who, Params: request.ParseParams(query), MaxBody: request.MaxBody,
		Vars: map[string]string{"id": name.ID, "origin": name.Origin}, AnswerHeader: http.Header{},
	}
}

// refusal returns the problem of an error; empty without one.
func refusal(err error) directory.Problem {
	if err == nil {
		return ""
	}

	return directory.ProblemOf(err)
}
