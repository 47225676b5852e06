package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
)

// RaftPeerSilent is the State of a RaftPeer of which the leader has received nothing for three seconds.
const RaftPeerSilent = wire.RaftPeerSilent

// The types of an operator's questions and changes.
type (
	// A RaftStatus is the state of a domain's cluster.
	RaftStatus = wire.RaftStatus
	// A NodeStatus is the state of the node that answers.
	NodeStatus = wire.NodeStatus
	// A QuotaStatus is how much of its quotas a domain uses.
	QuotaStatus = wire.QuotaStatus
	// A RaftPeer is one node of the domain.
	RaftPeer = wire.RaftPeer
	// Reads are the formats that a node's release reads.
	Reads = wire.Reads
	// Written are the formats that a domain writes.
	Written = wire.Written
	// An Admission is a node that may join.
	Admission = wire.Admission
	// A Member is one node in the mesh's gossip pool.
	Member = wire.Member
	// A Peer is the state of one peered domain.
	Peer = wire.Peer
	// PeerEvidence is a file which shows that a peer contradicted itself.
	PeerEvidence = wire.PeerEvidence
	// A Peering is one domain's part of a peering with another.
	Peering = wire.Peering
	// PeerRules select the registrations that pass in one direction of a peering.
	PeerRules = wire.PeerRules
	// PeerSettings are the settings of a peering that one side chooses.
	PeerSettings = wire.PeerSettings
	// A BundleEndpoint is where a trust domain's bundle is refreshed from.
	BundleEndpoint = wire.BundleEndpoint
	// A PeerVerb is a change of an existing peering.
	PeerVerb = wire.PeerVerb
	// An Invitation is a token for another domain.
	Invitation = wire.Invitation
	// A KeysStatus is a domain's newest key document.
	KeysStatus = wire.KeysStatus
	// A SigningKey is one by which the domain's signatures are verified.
	SigningKey = wire.SigningKey
	// A PolicyText is a policy in Cedar.
	PolicyText = wire.PolicyText
	// A PolicyPreview says what a policy would change at the peers.
	PolicyPreview = wire.PolicyPreview
	// ChangedExports are registrations of which a peer gets more or less.
	ChangedExports = wire.ChangedExports
	// An AuditPage is a run of a node's audit log.
	AuditPage = wire.AuditPage
	// A Flagged is a registration whose texts are written for rankers.
	Flagged = wire.Flagged
	// Owned is a page of the registrations that one identity owns.
	Owned = wire.Owned
	// An OwnedRegistration is one of them.
	OwnedRegistration = wire.OwnedRegistration
	// Accepted is the domain that an accepted token made a peer.
	Accepted = wire.Accepted
	// TrustBundle is the bundle of one domain, as people compare it.
	TrustBundle = wire.TrustBundle
	// Restored is the result of a restore.
	Restored = wire.Restored
)

// The changes of a peering.
const (
	PeerRemove   = wire.PeerRemove
	PeerRelease  = wire.PeerRelease
	PeerExport   = wire.PeerExport
	PeerUnexport = wire.PeerUnexport
)

// An Operator makes the requests of a domain's operators. Other identities get
// ErrForbidden.
type Operator struct {
	client *Client
	noted  *Reply // the answer to the last change; may be nil
}

// Operator returns the requests of operators, made by c with its identity.
func (c *Client) Operator() *Operator { return &Operator{client: c} }

// Noting returns the same requests. Each change without a result of its own stores its answer in
// reply, whose Index is a position at which the change is in force.
func (o *Operator) Noting(reply *Reply) *Operator { return &Operator{client: o.client, noted: reply} }

// command is Client.command, with the answer noted.
func (o *Operator) command(ctx context.Context, target string, in any, repeat repetition) error {
	reply, err := o.client.command(ctx, target, in, repeat)
	o.note(reply)

	return err
}

func (o *Operator) note(reply *Reply) {
	if o.noted != nil && reply != nil {
		*o.noted = *reply
	}
}

// Node reads the state of the node that answers.
func (o *Operator) Node(ctx context.Context) (NodeStatus, *Reply, error) {
	return read[NodeStatus](ctx, o.client, "/v1/operator/status", "position")
}

// Raft reads the state of the domain's cluster.
func (o *Operator) Raft(ctx context.Context) (*RaftStatus, *Reply, error) {
	out, r, err := read[RaftStatus](ctx, o.client, "/v1/operator/raft", "peers")
	return &out, r, err
}

// Transfer transfers the leadership to a node of the domain, by SPIFFE ID, or to
// any that is fit if it is empty.
func (o *Operator) Transfer(ctx context.Context, to string) error {
	return o.command(ctx, "/v1/operator/raft/transfer", wire.MemberRequest{ID: to}, once)
}

// RemoveMember removes a node, by SPIFFE ID, from the domain.
func (o *Operator) RemoveMember(ctx context.Context, id string) error {
	return o.command(ctx, "/v1/operator/raft/remove", wire.MemberRequest{ID: id}, once)
}

// Admit lets a node join the domain, once and within a day; withdraw takes that back.
func (o *Operator) Admit(ctx context.Context, id string, withdraw bool) error {
	return o.command(ctx, "/v1/operator/raft/admit", wire.MemberRequest{ID: id, Withdraw: withdraw}, once)
}

// AdmitStanding lets the nodes join whose SPIFFE IDs match a pattern, which may end in *, while
// the domain has fewer than most members that do; 0 takes that back.
func (o *Operator) AdmitStanding(ctx context.Context, pattern string, most uint32) error {
	in := wire.MemberRequest{ID: pattern, Standing: true, Max: most, Withdraw: most == 0}
	return o.command(ctx, "/v1/operator/raft/admit", in, once)
}

// ConfirmClock confirms the step of the clock of the domain's leader: by how much it is ahead of the domain's
// time, or behind it if negative, as NodeStatus.ClockStep says it.
func (o *Operator) ConfirmClock(ctx context.Context, step time.Duration) error {
	return o.command(ctx, "/v1/operator/raft/clock", wire.ClockStep{Seconds: step.Seconds()}, once)
}

// Leave removes the node that is asked from its domain.
func (o *Operator) Leave(ctx context.Context) error {
	return o.command(ctx, "/v1/operator/raft/leave", nil, once)
}

// Members reads the mesh's gossip pool.
func (o *Operator) Members(ctx context.Context) ([]Member, *Reply, error) {
	out, r, err := read[wire.Members](ctx, o.client, "/v1/operator/members", "members")
	return out.Members, r, err
}

// Peers reads the state of the peered domains.
func (o *Operator) Peers(ctx context.Context) ([]Peer, *Reply, error) {
	out, r, err := read[wire.Peers](ctx, o.client, "/v1/operator/peers", "peers")
	return out.Peers, r, err
}

// Bundles reads which trust bundles the node holds, with fingerprints.
func (o *Operator) Bundles(ctx context.Context) ([]TrustBundle, *Reply, error) {
	out, r, err := read[wire.TrustBundles](ctx, o.client, "/bundles", "bundles")
	return out.Bundles, r, err
}

// Bundle reads the SPIFFE bundle of a domain as the node that answers holds it, as anyone
// may. It is to be compared with the domain's own, and is no anchor by itself.
func (o *Operator) Bundle(ctx context.Context, domain string) (*Reply, error) {
	return o.client.do(ctx, &request{
		method: http.MethodGet, target: "/bundles/" + url.PathEscape(domain), repeat: idempotent,
	})
}

// SetPeering makes a peering with another domain, or replaces it.
func (o *Operator) SetPeering(ctx context.Context, p Peering) error {
	return o.command(ctx, "/v1/operator/peers", p, idempotent)
}

// Invite makes an invitation for another domain; a life of 0 is an hour. The secret of its token is
// drawn here. The directory gets the hash of the secret alone, which the operator's proof covers, so
// the token in the reply's body lacks it.
func (o *Operator) Invite(ctx context.Context, peer string, life time.Duration) (Invitation, *Reply, error) {
	secret := rand.Text()
	hash := sha256.Sum256([]byte(secret))
	in := wire.InviteRequest{
		Domain: peer, LifeSeconds: seconds(life), SecretHash: base64.RawURLEncoding.EncodeToString(hash[:]),
	}

	out, r, err := ask[Invitation](ctx, o.client, "/v1/operator/peers/invite", in, once, "token")
	if err == nil {
		out.Token += secret
	}

	return out, r, err
}

// Accept accepts another domain's invitation. To repeat it is safe. If fingerprints are
// given, the bundle of that domain must have exactly these.
func (o *Operator) Accept(ctx context.Context, token string, fingerprints ...string) (Accepted, *Reply, error) {
	in := wire.AcceptRequest{Token: token, Fingerprints: fingerprints}

	return ask[Accepted](ctx, o.client, "/v1/operator/peers/accept", in, idempotent, "domain")
}

// Redeem shows an invitation's secret to the domain that made it, with p, which is
// the invited domain's own side. It returns the inviting domain's side.
func (c *Client) Redeem(ctx context.Context, secret string, p Peering) (wire.Redemption, error) {
	p.State, p.Mesh = "", false // the inviting domain's to say

	body, err := json.Marshal(wire.RedeemRequest{Peering: p, Secret: secret})
	if err != nil {
		return wire.Redemption{}, err
	}

	reply, err := c.do(ctx, &request{method: http.MethodPost, target: wire.RedeemPath, body: body, repeat: once})
	if err != nil {
		return wire.Redemption{}, err
	}

	var own wire.Redemption

	return own, decode(reply, "domain", &own)
}

// ChangePeering changes an existing peering.
func (o *Operator) ChangePeering(ctx context.Context, peer string, verb PeerVerb) error {
	return o.command(ctx, "/v1/operator/peers/change", wire.PeerChange{Domain: peer, Verb: verb}, once)
}

// SetPeer changes the settings of a peering.
func (o *Operator) SetPeer(ctx context.Context, peer string, to PeerSettings) error {
	in := wire.PeerChange{Domain: peer, Verb: wire.PeerSet, PeerSettings: to}
	return o.command(ctx, "/v1/operator/peers/change", in, idempotent)
}

// Evidence reads a file that Peers lists of a domain; the oldest if id is empty.
func (o *Operator) Evidence(ctx context.Context, domain, id string) (*Reply, error) {
	query := url.Values{"domain": {domain}}
	set(query, "id", id)
	target := withQuery("/v1/operator/peers/evidence", query)

	return o.client.do(ctx, &request{method: http.MethodGet, target: target, repeat: idempotent})
}

// Keys reads which keys sign for the domain.
func (o *Operator) Keys(ctx context.Context) (KeysStatus, *Reply, error) {
	return read[KeysStatus](ctx, o.client, "/v1/operator/keys", "keys")
}

// RotateKey gives the node that is asked another signing key.
func (o *Operator) RotateKey(ctx context.Context) error {
	return o.command(ctx, "/v1/operator/keys/rotate", nil, once)
}

// RevokeKey revokes a signing key, for good. To repeat it is safe.
func (o *Operator) RevokeKey(ctx context.Context, id string) error {
	return o.command(ctx, "/v1/operator/keys/revoke", wire.RevokeRequest{Key: id}, idempotent)
}

// EraseHistory erases the contents of a registration that has ended, for good. To repeat it is safe.
func (o *Operator) EraseHistory(ctx context.Context, rid string) error {
	return o.command(ctx, "/v1/operator/history/erase", wire.EraseRequest{RID: rid}, idempotent)
}

// Flagged reads which registrations are flagged.
func (o *Operator) Flagged(ctx context.Context) ([]Flagged, *Reply, error) {
	out, r, err := read[wire.FlaggedList](ctx, o.client, "/v1/operator/flagged", "flagged")
	return out.Flagged, r, err
}

// Policy reads the policy that is in force at the node that answers.
func (o *Operator) Policy(ctx context.Context) (*PolicyText, *Reply, error) {
	out, r, err := read[PolicyText](ctx, o.client, "/v1/operator/policy", "policy")
	return &out, r, err
}

// SetPolicy puts a policy in force for the whole domain; an empty one is the
// built-in policy. If replaces is not nil and another version is in force,
// nothing is changed, and the error is ErrPrecondition.
func (o *Operator) SetPolicy(ctx context.Context, text string, replaces *uint64) error {
	body, err := json.Marshal(wire.PolicyChange{Policy: &text, Version: replaces})
	if err != nil {
		return err
	}

	reply, err := o.client.change(ctx, &request{method: http.MethodPut, target: "/v1/operator/policy", body: body})
	o.note(reply)

	return err
}

// PreviewPolicy says what a policy would change at the peers; an empty one is the built-in
// policy. It changes nothing.
func (o *Operator) PreviewPolicy(ctx context.Context, text string) (PolicyPreview, *Reply, error) {
	in := wire.PolicyChange{Policy: &text}

	return ask[PolicyPreview](ctx, o.client, "/v1/operator/policy/preview", in, idempotent, "peers")
}

// Owned lists the registrations of an identity in the domain, from the beginning or behind
// the Next of another page.
func (o *Operator) Owned(ctx context.Context, owner, after string) (Owned, *Reply, error) {
	query := url.Values{"owner": {owner}}
	set(query, "after", after)

	return read[Owned](ctx, o.client, withQuery(wire.OwnedPath, query), "registrations")
}

// EndOwned removes a page of an identity's registrations, and returns them. There
// are more if Next is not empty.
func (o *Operator) EndOwned(ctx context.Context, owner string) (Owned, *Reply, error) {
	return ask[Owned](ctx, o.client, wire.OwnedPath+"/end", wire.NewOwner{Owner: owner}, once, "registrations")
}

// SaveSnapshot writes a backup of the directory's domain to w. It is sent once. Its
// own checksum says whether it is whole.
func (o *Operator) SaveSnapshot(ctx context.Context, w io.Writer) error {
	q := &request{method: http.MethodGet, target: "/v1/operator/snapshot", unbounded: true}
	out := &target{w: w}

	err := o.client.attempt(ctx, o.client.Address(), q, func(resp *http.Response) error {
		defer func() { _ = resp.Body.Close() }()

		if resp.StatusCode != http.StatusOK {
			return refusalOf(resp)
		}

		if _, err := io.Copy(out, resp.Body); err != nil {
			return fmt.Errorf("the backup did not arrive whole: %w", err)
		}

		return nil
	})

	// A local fault must not read as one of the directory.
	if out.err != nil {
		return fmt.Errorf("writing the backup: %w", out.err) // no fault of the directory
	}

	return err
}

// A target keeps the error of a writer, apart from those of the connection.
type target struct {
	w   io.Writer
	err error
}

func (t *target) Write(b []byte) (n int, err error) {
	n, t.err = t.w.Write(b)
	return n, t.err
}

// RestoreOptions say which consequences of a restore are accepted.
type RestoreOptions struct {
	// AcceptLossSince accepts that changes since the backup are lost: it is the backup's position,
	// EPOCH.REVISION, or its revision.
	AcceptLossSince string
	// NewEpoch accepts that peers drop the domain's registrations until the owner of each
	// refreshes it.
	NewEpoch bool
	// Reason is for the domain's ledger.
	Reason string
}

// RestoreSnapshot restores a backup of that size in bytes, which open returns from its
// beginning: it is read twice, to prove it and to send it. It is sent once. Consequences that
// the options don't accept are refused with ErrConflict; the Error names each in Errors, at
// /accept_loss_since and /new_epoch.
func (o *Operator) RestoreSnapshot(
	ctx context.Context, open func() io.Reader, size int64, opt RestoreOptions,
) (*Restored, *Reply, error) {
	query := url.Values{}
	if opt.NewEpoch {
		query.Set("new_epoch", "true")
	}

	set(query, "accept_loss_since", opt.AcceptLossSince)
	set(query, "reason", opt.Reason)

	q := &request{
		method: http.MethodPost, target: withQuery("/v1/operator/snapshot", query),
		stream: open, size: size, media: wire.MediaBackup, unbounded: true,
	}

	r, err := o.client.do(ctx, q)
	if err != nil {
		return nil, nil, err
	}

	out := &Restored{}

	return out, r, decode(r, "now", out)
}

// refusalOf returns the refusal that an answer is. An answer without an error
// that is not the one that was asked for is no directory's.
func refusalOf(resp *http.Response) error {
	r, err := readReply(resp)
	if err != nil {
		return err
	}

	return fmt.Errorf("%w: it is %d, of type %q", ErrAnswer, r.Status, r.Header.Get("Content-Type"))
}

// AuditOptions select lines of a node's audit log.
type AuditOptions struct {
	// Who is the actor, the owner or the member that brought a command: an identity, or
	// the end of its path.
	Who string
	// What is an action such as peer.write, or the part of it before a dot; or an agent, a
	// rid or a target.
	What  string
	Since time.Time // no lines of before; zero is any
	After uint64    // the number of the line before the first
	Limit int       // lines of a page; 0 is 1,000
}

func (o *AuditOptions) query() url.Values {
	query := url.Values{}

	if o.Who != "" {
		query.Set("who", o.Who)
	}

	if o.What != "" {
		query.Set("what", o.What)
	}

	if !o.Since.IsZero() {
		query.Set("since", o.Since.UTC().Format(time.RFC3339))
	}

	if o.After > 0 {
		query.Set("after", strconv.FormatUint(o.After, 10))
	}

	if o.Limit > 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}

	return query
}

// Audit reads a page of the audit log of the node that is asked. The next one is after its
// Last. Auditors may call it too.
func (o *Operator) Audit(ctx context.Context, opt AuditOptions) (*AuditPage, *Reply, error) {
	out, r, err := read[AuditPage](ctx, o.client, withQuery(wire.AuditPath, opt.query()), "lines")
	return &out, r, err
}

// FollowAudit streams lines of the audit log as they are written: events of the kinds
// EventLine, EventFault and EventEnd. Without Since and After it begins with the next line.
func (o *Operator) FollowAudit(ctx context.Context, opt AuditOptions) (*Watch, error) {
	query := opt.query()
	query.Set("follow", "true")

	return o.client.stream(ctx, withQuery(wire.AuditPath, query), "")
}
