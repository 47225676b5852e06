package policy

import (
	_ "embed" // the policy sets
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

var (
	//go:embed shipped.cedar
	shippedText []byte
	//go:embed development.cedar
	developmentText []byte
	// Vocabulary describes for operators what policies are about: principals, actions, resources and
	// their attributes.
	//
	//go:embed vocabulary.txt
	Vocabulary string
)

// A Policy decides by Cedar policies which actions identities may take and which
// registrations are exported to peers. It denies by default, and a forbid overrides a
// permit. Apply never calls it. It is safe for concurrent use.
type Policy struct {
	*surroundings
	visibility directory.Visibility
	builtIn    *activeSet
	current    atomic.Pointer[activeSet]
	setting    sync.Mutex // held to replace current
}

// surroundings are the inputs of a decision besides the policies and the question. They are set
// before the first question.
type surroundings struct {
	domain   spiffeid.TrustDomain
	exported func(peer spiffeid.TrustDomain) bool // see Exports
	own      []string                             // see Adopt
	failing  func(policy, action, reason string)  // see Failing; may be nil
}

// New returns a built-in policy set for the directory of domain: "shipped" or
// "development".
func New(name string, domain spiffeid.TrustDomain) (*Policy, error) {
	switch name {
	case "shipped":
		return parsePolicy("shipped.cedar", shippedText, domain, directory.Visibility{})
	case "development":
		return parsePolicy("development.cedar", developmentText, domain, directory.Visibility{Mesh: true})
	}

	return nil, fmt.Errorf("there is no policy set %q: use shipped or development", name)
}

func parsePolicy(file string, text []byte, domain spiffeid.TrustDomain, visibility directory.Visibility) (*Policy,
	error) {
	set, err := parsePolicies(file, text)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	policy := &Policy{surroundings: &surroundings{domain: domain}, visibility: visibility}
	policy.builtIn = &activeSet{set: set, text: text}
	policy.enforce(set, text, 0)

	return policy, nil
}

// enforce puts a set in force.
func (p *Policy) enforce(set slicedSet, text []byte, version uint64) {
	p.setting.Lock()
	defer p.setting.Unlock()
	p.replace(&activeSet{set: set, text: text, version: version})
}

// replace makes next the set in force. The caller holds setting.
func (p *Policy) replace(next *activeSet) {
	next.in = p.surroundings
	next.over = make(chan struct{})
	next.known = map[question]directory.Decision{}
	next.views = map[viewOf]*view{}

	old := p.current.Load()
	if old != nil {
		next.generation = old.generation + 1
	}

	// The set is in force before waiters wake, because they ask for it at once.
	p.current.Store(next)

	if old != nil {
		close(old.over)
	}
}

// Reconsider discards all cached answers. Call it when an input other than the policy's
// text has changed, such as which peers are exported to.
func (p *Policy) Reconsider() {
	p.setting.Lock()
	defer p.setting.Unlock()
	q := p.current.Load()
	p.replace(&activeSet{set: q.set, text: q.text, version: q.version})
}

// Generation returns the number of the policy set in force. It changes whenever answers
// may change: with the policy's text, and with each call of Reconsider.
func (p *Policy) Generation() uint64 { return p.current.Load().generation }

// Changed is closed when Generation has become another one.
func (p *Policy) Changed() <-chan struct{} { return p.current.Load().over }

// MaxSize bounds the text of a domain's policy, in bytes.
const MaxSize = 256 << 10

// Check reports the first mistake in a text of Cedar policies, with its file and
// line: also an attribute that does not exist, which [Policy.Set] takes. The error is a
// *directory.Error.
func Check(file string, text []byte) error {
	if len(text) > MaxSize {
		return directory.Refuse(directory.TooLarge, "the policy has %d bytes; at most %d are allowed", len(text),
			MaxSize)
	}

	if _, err := parsePolicies(file, text); err != nil {
		return directory.Refuse(directory.BadRequest, "the policy can't be read: %s", parseError(err))
	}

	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		return err
	}

	for _, policy := range list {
		if err := checkAttributes(policy); err != nil {
			return directory.Refuse(directory.BadRequest, "the policy %q would fail: %s:%d: %w",
				policy.Annotations()["id"], file, policy.Position().Line, err)
		}
	}

	return nil
}

// cedarError is the form of the library's errors: the place behind the fault, the word there, and the
// fault, or the words that are there and that must be.
var cedarError = regexp.MustCompile(
	`^parser error: parse error at ([^ ]+:\d+:\d+) "(.*)": (?:exact got (.*) want (.+)|(.+))$`)

// parseError returns the place and the fault of a text that is no policy.
func parseError(err error) string {
	parts := cedarError.FindStringSubmatch(err.Error())
	if parts == nil {
		return err.Error()
	}

	switch at, next, found, want, fault := parts[1], parts[2], parts[3], parts[4], parts[5]; {
	case fault != "":
		return fmt.Sprintf("%s: %s, before %q", at, fault, next)
	case found == "":
		return fmt.Sprintf("%s: expected %q, got the end of the text", at, want)
	default:
		return fmt.Sprintf("%s: expected %q, got %q", at, want, found)
	}
}

// Parse returns the policy of a Cedar text for the directory of domain. Its errors
// are those of [Check].
func Parse(file string, text []byte, domain spiffeid.TrustDomain) (*Policy, error) {
	if err := Check(file, text); err != nil {
		return nil, err
	}

	return parsePolicy(file, text, domain, directory.Visibility{})
}

// Set puts the domain's policy in force at once: it answers every later question. An
// empty text means the built-in policy. A text that this release can't read permits
// nothing, because it may forbid actions that an older policy permits.
func (p *Policy) Set(text []byte, version uint64) error {
	if len(text) == 0 {
		p.enforce(p.builtIn.set, p.builtIn.text, version)
		return nil
	}

	set, err := parsePolicies("policy.cedar", text)
	if err != nil {
		set, _ = parsePolicies("policy.cedar", nil)
	}

	p.enforce(set, text, version)

	return err
}

// Version returns the version of the policy in force: the revision at which the domain
// took it, 0 for the built-in policy.
func (p *Policy) Version() uint64 { return p.current.Load().version }

// InForce returns the text of the policy in force, in Cedar, and its version.
func (p *Policy) InForce() (text []byte, version uint64) {
	q := p.current.Load()
	return q.text, q.version
}

// With returns a policy like p with another text that a domain has agreed on, or may agree on
// if Check says so; an empty one means the built-in policy. It doesn't change p.
func (p *Policy) With(file string, text []byte) (*Policy, error) {
	if len(text) == 0 {
		text = p.builtIn.text
	}

	policy, err := parsePolicy(file, text, p.domain, p.visibility)
	if err != nil {
		return nil, directory.Refuse(directory.BadRequest, "%w", err)
	}

	policy.own, policy.exported = p.own, p.exported

	return policy, nil
}

// Adopt makes the identities whose URIs begin with one of prefixes count among the
// domain's own, as its SPIFFE IDs do. It is for the time before the first question.
func (p *Policy) Adopt(prefixes []string) { p.own = prefixes }

// Inside reports whether id is of this domain: a SPIFFE or WIMSE identity of its trust domain,
// or one that was adopted.
func (p *Policy) Inside(id directory.Identity) bool {
	return id.MemberOf(p.domain) || hasPrefix(id, p.own)
}

// Exports makes f say which peers the operator lets have something. It is for the
// time before the first question; f must not block.
func (p *Policy) Exports(f func(peer spiffeid.TrustDomain) bool) { p.exported = f }

// Failing makes f be called for each forbid that can't be evaluated when a question is decided, and
// that forbids for this reason. It is for the time before the first question; f must not block.
func (p *Policy) Failing(f func(policy, action, reason string)) { p.failing = f }

// DefaultVisibility returns the visibility of a registration whose registrant
// asked for none.
func (p *Policy) DefaultVisibility() directory.Visibility { return p.visibility }

// Register decides whether id may register that name with that visibility. Who
// holds the name already is for the directory to say. Decisions share their
// lists of policies, which must not be modified.
func (p *Policy) Register(id directory.Identity, agent string, proj *directory.Projection,
	v directory.Visibility) directory.Decision {
	r := registration{agent: agent, owner: id.String(), origin: p.domain.Name(), visibility: v.String(), own: true}
	q := p.current.Load()

	return q.decide(askRegister, p.identity(id), r.entity(q.set[askRegister].uses, proj), types.Record{})
}

// Renew decides whether the owner of a registration of the domain may renew it: whether it may
// register it as it is. The decision is remembered for as long as the policy is in force, by the
// attributes that policies about register look at: often the owner alone.
func (p *Policy) Renew(e *directory.Entry) directory.Decision { return p.current.Load().renew(e) }

// OnBehalf decides whether a commissioning tool may make that registration for owner.
// Register decides which agents owner may claim.
func (p *Policy) OnBehalf(tool, owner directory.Identity, agent string, proj *directory.Projection,
	v directory.Visibility) directory.Decision {
	r := registration{agent: agent, owner: owner.String(), origin: p.domain.Name(), visibility: v.String(), own: true}
	q := p.current.Load()

	return q.decide(askOnBehalf, p.identity(tool), r.entity(q.set[askOnBehalf].uses, proj), types.Record{})
}

// Read decides whether id, which may be zero (anonymous), may see e.
func (p *Policy) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	q := p.current.Load()
	return q.see(askRead, id, e, q.streamed)
}

// Invoke decides whether id, which may be zero (anonymous), may call the agent e through
// the gateway.
func (p *Policy) Invoke(id directory.Identity, e *directory.Entry) directory.Decision {
	q := p.current.Load()
	return q.see(askInvoke, id, e, q.streamed)
}

// Export decides whether a peer domain may have a registration. Never one whose
// visibility leaves that peer out.
func (p *Policy) Export(peer spiffeid.TrustDomain, agent string, owner directory.Identity, v directory.Visibility,
	proj *directory.Projection) directory.Decision {
	return p.current.Load().export(peer, agent, owner, v, proj)
}

func (q *activeSet) export(peer spiffeid.TrustDomain, agent string, owner directory.Identity,
	visibility directory.Visibility, proj *directory.Projection) directory.Decision {
	slice := q.set[askExport]
	r := registration{
		origin: q.in.domain.Name(), own: true,
		visible: visibility.Mesh || slices.Contains(visibility.Peers, peer),
	}
	r.exported = q.in.exported != nil && q.in.exported(peer)
	keep(slice, looksAtAgent, &r.agent, agent)
	keep(slice, looksAtOwner, &r.owner, owner.String)
	keep(slice, looksAtVisibility, &r.visibility, visibility.String)
	uid := types.NewEntityUID("Peer", types.String(peer.Name()))

	decide := func() directory.Decision {
		return q.decide(askExport, principal{uid, func() types.Entity {
			return types.Entity{UID: uid}
		}}, r.entity(slice.uses, proj), types.Record{})
	}

	// The projection is not part of the question, so an answer that depends on it is not cached.
	if slice.looksAt(looksAtProjection) {
		return decide()
	}

	return q.remember(question{askExport, uid, r}, decide)
}

// Operate decides whether id may do an operator's action: raft.read,
// members.read, peer.read and so on.
func (p *Policy) Operate(id directory.Identity, action string) directory.Decision {
	context := types.NewRecord(types.RecordMap{"operation": types.String(action)})
	return p.current.Load().decide(askOperate, p.identity(id), p.directory(), context)
}

// Commission reports whether id may change registrations that others own
// (jimenez 8.2, commissioning tools).
func (p *Policy) Commission(id directory.Identity) bool {
	q := p.current.Load()

	return q.remember(question{ask: askCommission, principal: uidOf(id)}, func() directory.Decision {
		return q.decide(askCommission, p.identity(id), p.directory(), types.Record{})
	}).Allow
}

// Class names the inputs of the decision whether an identity may see e: its origin, its
// owner if that is an identity of this domain, and the attributes that policies use. An
// identity that may see one registration of a class may see all of them.
func (p *Policy) Class(entry *directory.Entry) string {
	activeSet := p.current.Load()
	slice := activeSet.set[askRead]
	r := registration{own: entry.Origin == p.domain, origin: entry.Origin.Name()}
	keep(slice, looksAtAgent, &r.agent, entry.Agent)
	keep(slice, looksAtVisibility, &r.visibility, entry.Visibility.String)

	if r.own {
		r.owner = entry.Owner.String()
	} else {
		keep(slice, looksAtOwner, &r.owner, entry.Owner.String)
	}

	if r.own && slice.looksAt(looksAtStreamed) {
		x := activeSet.set[askExport] // decides which streams hold each registration
		keep(x, looksAtAgent, &r.agent, entry.Agent)

		// Whether a peer may have it depends on the visibility, even if no policy looks at it.
		r.visibility = entry.Visibility.String()
		if x.looksAt(looksAtProjection) {
			r.agent = entry.RID.String()
		}
	}

	return strings.Join([]string{r.origin, r.owner, r.visibility, r.agent}, "\x00")
}
