package wire

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A RaftStatus is the state of a domain's cluster, as one node sees it.
type RaftStatus struct {
	// Leader is a SPIFFE ID; empty if none is known.
	Leader string     `json:"leader"`
	Peers  []RaftPeer `json:"peers"`
	// Admitted are nodes that may join.
	Admitted []Admission `json:"admitted,omitempty"`
	// Written are the versions and formats that the domain writes.
	Written Written `json:"written,omitzero"`
	// Quotas are how much of its quotas the domain uses.
	Quotas QuotaStatus `json:"quotas,omitzero"`
}

// Written are the versions of the log, of snapshots and of messages between members
// that a domain writes, and the format of each signed structure; an absent one is 1.
type Written struct {
	Log      uint            `json:"log"`
	Snapshot uint            `json:"snapshot"`
	Wire     uint            `json:"wire"`
	Formats  map[string]uint `json:"formats,omitempty"`
}

// Reads are the newest versions that a node reads, and the formats of each signed
// structure; of an absent one it reads 1.
type Reads struct {
	Log      uint              `json:"log"`
	Snapshot uint              `json:"snapshot"`
	Wire     uint              `json:"wire"`
	Formats  map[string][]uint `json:"formats,omitempty"`
}

// A QuotaStatus is how much of its quotas a domain uses. A limit of 0 is none.
type QuotaStatus struct {
	Registrations      uint64 `json:"registrations"`
	RegistrationsLimit uint64 `json:"registrations_limit"`
	// Bytes are of documents, as they were written.
	Bytes      uint64 `json:"bytes"`
	BytesLimit uint64 `json:"bytes_limit"`
	Owners     int    `json:"owners"`
	// LargestShare is the largest part of its quota that one owner uses, from 0 to
	// 1, exact to a 64th.
	LargestShare float64 `json:"largest_share"`
}

// RaftPeerSilent is the State of a RaftPeer of which the leader has received nothing for three seconds.
const RaftPeerSilent = "silent"

// A RaftPeer is one node of the domain.
type RaftPeer struct {
	// ID is the node's SPIFFE ID.
	ID      string `json:"id"`
	Address string `json:"address"`
	// API is the base URL of its directory, if it has announced one.
	API   string `json:"api,omitempty"`
	Voter bool   `json:"voter"`
	// LastContact is when the node that answers last received something of it.
	LastContact time.Time `json:"last_contact,omitzero"`
	// State is alive, RaftPeerSilent or unknown.
	State string `json:"state"`
	// Duplicate is the address of a second process that uses this identity, as that of a cloned machine. The
	// leader has refused it.
	Duplicate string `json:"duplicate,omitempty"`
	// Reads are the formats that its release reads, if it has announced them.
	Reads Reads `json:"reads,omitzero"`
}

// An Admission is a node that may join.
type Admission struct {
	ID    string    `json:"id"` // of a standing admission a pattern
	Until time.Time `json:"until,omitzero"`
	// Max is of a standing admission: how many members may match the pattern.
	Max uint32 `json:"max,omitzero"`
}

// A MemberRequest is the body of a request about one node of the domain.
type MemberRequest struct {
	ID string `json:"id"`
	// Withdraw takes an admission back.
	Withdraw bool `json:"withdraw,omitzero"`
	// Standing admits all nodes whose IDs match ID, which may end in *, while the domain has
	// fewer than Max members that do.
	Standing bool   `json:"standing,omitzero"`
	Max      uint32 `json:"max,omitzero"`
}

// A ClockStep is the body of a request that confirms the step of the leader's clock.
type ClockStep struct {
	// Seconds is by how much the clock is ahead of the domain's time, or behind it if negative, as a node's
	// status says it.
	Seconds float64 `json:"step_seconds"`
}

// A NodeStatus is the state of the node that answers.
type NodeStatus struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	Ready   bool   `json:"ready"`
	// NotReady is why the node is not ready.
	NotReady string `json:"not_ready,omitempty"`
	// Position is the EPOCH.REVISION of its domain that the node has applied.
	Position    string    `json:"position"`
	SVIDExpires time.Time `json:"svid_expires,omitzero"`
	// BundleExpires is the end of the last CA certificate in its domain's bundle.
	BundleExpires time.Time `json:"bundle_expires,omitzero"`
	// DiskFree is the free space on the disk with the node's data, in bytes; absent if it
	// is unknown.
	DiskFree        *uint64 `json:"disk_free,omitzero"`
	DiskFreePercent *int    `json:"disk_free_percent,omitzero"`
	// ClockStep is by how much this machine's clock is ahead of the domain's time, or behind it if
	// negative, since a step that nothing has confirmed yet; else 0.
	ClockStep float64 `json:"clock_step_seconds"`
	// ClockBehind is by how much a leader's clock is behind the committed time, if that is over 2 s;
	// else 0.
	ClockBehind float64 `json:"clock_behind_seconds"`
	// Unconfirmed is how many of the domain's registrations were restored from a backup and not
	// refreshed by their owners since; peers don't have them.
	Unconfirmed int `json:"unconfirmed"`
	// Ledger is the state of the domain's transparency log.
	Ledger LedgerStatus `json:"ledger,omitzero"`
}

// A LedgerStatus is the state of a domain's transparency log, as the node that answers has it.
type LedgerStatus struct {
	Leaves uint64 `json:"leaves"`
	// Incomplete is whether the node lacks entries of it.
	Incomplete bool `json:"incomplete,omitzero"`
	// Cosigned is how many leaves a checkpoint covers that the quorum of witnesses has cosigned; absent if the
	// domain asks for none.
	Cosigned *uint64 `json:"cosigned_leaves,omitzero"`
	// Witnesses are those that the node has asked, as the domain's leader.
	Witnesses []WitnessStatus `json:"witnesses,omitempty"`
}

// A WitnessStatus is the outcome of submissions to a witness.
type WitnessStatus struct {
	Name string `json:"name"`
	// Cosigned is when it last cosigned a checkpoint that this node submitted.
	Cosigned time.Time `json:"cosigned_at,omitzero"`
	// FailingSince is when it first failed in a row, and Error why it failed last; absent while it cosigns.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Error        string    `json:"error,omitempty"`
}

// Members are the nodes in the mesh's gossip pool.
type Members struct {
	Members []Member `json:"members"`
}

// A Member is one node in the mesh's gossip pool.
type Member struct {
	// ID is its SPIFFE ID.
	ID      string `json:"id"`
	Domain  string `json:"domain"`
	Address string `json:"address"`
	// State is alive, or lost for a former member that is looked for.
	State string `json:"state"`
}

// Peers are the domains that a domain peers with.
type Peers struct {
	Peers []Peer `json:"peers"`
}

// A Peer is the state of one peered domain, as the node that answers sees it.
type Peer struct {
	Domain string `json:"domain"`
	// State is pending, active, frozen or terminated as agreed. Of an agreed active peer it is
	// what the node that answers finds: connecting (it has not answered since the node
	// started), unreachable (none of its nodes answers), refused (it takes nothing from this
	// domain; theirs has the reason), behind, failing (it answers, and
	// no head of it verifies), not_exported (it does not export to this domain) or
	// unsupported (this release can't read what it announces).
	State string `json:"state"`
	// Up is whether one of the peer's nodes answers the node, LastAnswer when one did last,
	// and UnreachableSince the start of the silence while none does.
	Up               bool      `json:"up"`
	LastAnswer       time.Time `json:"last_answer,omitzero"`
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// LastPage is the issue of the newest verified page, and PageAge the time since then in
	// seconds. An idle domain issues none; HeadAge shows that it answers for its state.
	LastPage time.Time `json:"last_page,omitzero"`
	PageAge  *float64  `json:"page_age_seconds,omitzero"`
	// Agreed is pending, active, frozen or terminated.
	Agreed string `json:"agreed"`
	// Fingerprints are of the bundle that is believed, as of a TrustBundle.
	Fingerprints []string `json:"fingerprints,omitempty"`
	// BundleEndpoint is the URL from which the peer's bundle is refreshed,
	// BundleChecked when that succeeded last, and BundleError why it failed.
	BundleEndpoint string    `json:"bundle_endpoint,omitempty"`
	BundleChecked  time.Time `json:"bundle_checked,omitzero"`
	BundleError    string    `json:"bundle_error,omitempty"`

	// Exported is whether mesh registrations are exported to the peer.
	Exported bool `json:"exported"`
	// NotExported is whether the peer does not export to this domain.
	NotExported bool      `json:"not_exported,omitzero"`
	Until       time.Time `json:"invited_until,omitzero"`
	// EndedBy is us or peer for a terminated peering.
	EndedBy   string   `json:"ended_by,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// StatedAddresses are those at which its nodes say that they are reached, and which the
	// peering does not have: they are asked too, until an operator sets them.
	StatedAddresses []string `json:"stated_addresses,omitempty"`
	// Unconfirmed counts the registrations that for over a minute only one of its nodes has announced, or that are
	// in no ledger which another one signs.
	Unconfirmed int `json:"unconfirmed,omitempty"`
	// ContradictedNodes are nodes of the peer that other nodes of the peer contradict.
	ContradictedNodes []ContradictedNode `json:"contradicted_nodes,omitempty"`
	// Gossip are addresses by which its pool is joined.
	Gossip []string `json:"gossip,omitempty"`
	// Theirs is how the peer sees this domain; absent if it has not said so.
	Theirs *PeerView `json:"theirs,omitempty"`
	// Watermark is the EPOCH.REVISION that this node has applied, and Tip the one
	// that the peer has announced.
	Watermark    string    `json:"watermark,omitempty"`
	Tip          string    `json:"tip,omitempty"`
	LagRevisions uint64    `json:"lag_revisions"`
	LagSeconds   float64   `json:"lag_seconds"`
	LastHeard    time.Time `json:"last_heard,omitzero"`
	LastError    string    `json:"last_error,omitempty"`
	// Received counts messages that name the peer, by outcome, from any sender.
	Received map[string]uint64 `json:"received,omitempty"`
	// Refused counts refused messages that its nodes sent, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
	// HeadAge is of its newest verified head, in seconds.
	HeadAge float64 `json:"head_age_seconds"`
	// LedgerAge is of the newest verified checkpoint of its ledger that is not behind the one before, in seconds,
	// and LedgerError why there was no newer one.
	LedgerAge   float64 `json:"ledger_age_seconds,omitzero"`
	LedgerError string  `json:"ledger_error,omitempty"`
	// LedgerDiffers are the nodes, of this domain or of other peers, that were shown another ledger of it.
	LedgerDiffers []string `json:"ledger_differs,omitempty"`
	// HoldsBack are the structures of which the domain writes a lower format than its
	// nodes read, because the peer reads no higher one or has not said what it reads.
	HoldsBack []string `json:"holds_back,omitempty"`
	// Export and Import are the peering's rules.
	Export PeerRules `json:"export,omitzero"`
	Import PeerRules `json:"import,omitzero"`
	// Hidden is whether the peer's registrations are hidden because it was not
	// heard for long.
	Hidden bool `json:"hidden,omitzero"`
	// Shed is whether the peer's registrations are not shown at this node, because it is
	// short of memory. Its disk keeps them.
	Shed bool `json:"shed,omitzero"`
	// Records is how many are held of the peer, and Bytes their size on disk.
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	// RecordsLimit and BytesLimit bound these; 0 is no bound.
	RecordsLimit uint64 `json:"records_limit,omitzero"`
	BytesLimit   uint64 `json:"bytes_limit,omitzero"`
	// Missing is the number of registrations whose records are not there yet.
	Missing int `json:"missing"`
	// OverQuota is the number of registrations for which there was no room.
	OverQuota uint64 `json:"over_quota"`
	// Unsupported says for what a later release is needed to follow the peer.
	Unsupported string `json:"unsupported,omitempty"`
	// Unopened counts the records that are held until a later release can read them,
	// by the number of their format.
	Unopened map[string]uint64 `json:"unopened,omitempty"`
	// BytesIn and BytesOut are of bodies that its nodes answered and were answered.
	BytesIn  uint64 `json:"bytes_in"`
	BytesOut uint64 `json:"bytes_out"`
	// GossipIn and GossipOut are bytes of gossip with its nodes.
	GossipIn  uint64 `json:"gossip_in"`
	GossipOut uint64 `json:"gossip_out"`

	// Evidence is the evidence of this node against the peer, the oldest first.
	Evidence []PeerEvidence `json:"evidence,omitempty"`
}

// A ContradictedNode is a node of a peer that other nodes of the peer contradict. Its key may be stolen.
type ContradictedNode struct {
	Node string `json:"node"`
	// Key is the ID of the key that signed the contradicted statement, and Reason describes the contradiction.
	Key    string `json:"key"`
	Reason string `json:"reason"`
	// Verdict is distrusted if this node refuses all that the node signs, or undecided while too few
	// nodes of the peer answer to tell who is right.
	Verdict string `json:"verdict"`
	// Since is when a node contradicted it first, and RefusedSince when this node began to refuse it.
	Since        time.Time `json:"since"`
	RefusedSince time.Time `json:"refused_since,omitzero"`
}

// String returns the node, the verdict and the reason in words.
func (n ContradictedNode) String() string {
	verdict := "too few of its nodes answer to decide which one is right"
	if n.Verdict == "distrusted" {
		verdict = "its signatures are refused since " + n.RefusedSince.UTC().Format(time.RFC3339)
	}

	return n.Node + ": " + n.Reason + "; " + verdict
}

// A PeerView is how a node of a peer sees this domain, by that node's word.
type PeerView struct {
	// State is that of Peer, or certificate (the peer rejects this node's certificate) or none
	// (this domain is no peer there).
	State string `json:"state"`
	// Refuses is whether the peer takes nothing from this domain.
	Refuses bool `json:"refuses,omitzero"`
	// Node is the node that said so, and Heard when.
	Node  string    `json:"node"`
	Heard time.Time `json:"heard"`
	// Position is the EPOCH.REVISION of this domain that the peer has applied last, and Page the issue
	// of that page.
	Position string    `json:"position,omitempty"`
	Page     time.Time `json:"page,omitzero"`
	// RefusedCode is the reason of the last message of this domain's nodes that was refused there, and
	// RefusedAt its time.
	RefusedCode string    `json:"refused_code,omitempty"`
	RefusedAt   time.Time `json:"refused_at,omitzero"`
	// Evidence is the ID of the evidence for which this domain is frozen there.
	Evidence string `json:"evidence,omitempty"`
	Error    string `json:"error,omitempty"`
}

// RefusalText returns in words why the peer takes nothing from this domain; "" if it does.
func (p *Peer) RefusalText() string {
	if p.Theirs == nil || !p.Theirs.Refuses {
		return ""
	}

	text := "state " + p.Theirs.State

	switch p.Theirs.State {
	case "frozen":
		text = "it has frozen this domain"
		if p.Theirs.Evidence != "" {
			text += " by evidence " + p.Theirs.Evidence
		}
	case "none":
		text = "this domain is no peer there"
	case "certificate":
		text = "it rejects this node's certificate: it has ended the peering, or another bundle of this domain"
	case "unreachable":
		text = "it reaches none of this domain's nodes"
	case "failing":
		text = "it can't verify this domain"
	}

	if p.Theirs.Error != "" {
		text += ": " + p.Theirs.Error
	}

	return text
}

// RefusalAdvice returns what to do about RefusalText, for the operator of the domain own.
func (p *Peer) RefusalAdvice(own string) string {
	switch p.Theirs.State {
	case "frozen":
		return "ask its operator for the evidence, revoke the key that signed it, and have it run " +
			"\"roster peer release " +
			own + "\""
	case "unreachable":
		return "ask its operator to run \"roster peer set " + own +
			" --nodes URL,…\" with this domain's present addresses"
	case "none":
		return "remove it with \"roster peer remove " + p.Domain + "\", or invite it again"
	}

	return "ask its operator to run \"roster peer set " + own +
		" --peer-bundle FILE\" with this domain's present bundle, " +
		"or to invite this domain again"
}

// FrozenText says by which evidence the peer is frozen.
func (p *Peer) FrozenText() string {
	text := "it has contradicted itself"

	if n := len(p.Evidence); n > 0 {
		last := p.Evidence[n-1]
		text += "; evidence " + last.ID + ", found " + last.Found.UTC().Format(time.RFC3339)
	}

	return text
}

// StateText returns the state in words.
func (p *Peer) StateText() string {
	switch {
	case !p.UnreachableSince.IsZero():
		return "unreachable since " + p.UnreachableSince.UTC().Format(time.RFC3339)
	case p.State == "not_exported":
		return "doesn't export to this domain yet"
	}

	return p.State
}

// PageText returns the issue of the newest verified page in words, and its age.
func (p *Peer) PageText() string {
	if p.LastPage.IsZero() {
		return "no verified page yet"
	}

	text := "last verified page at " + p.LastPage.UTC().Format(time.RFC3339)
	if age := p.PageAgeText(); age != "" {
		text += ", " + age + " ago"
	}

	return text
}

// PageAgeText returns the age of the newest verified page, such as 3m20s; "" if there is none.
func (p *Peer) PageAgeText() string {
	if p.PageAge == nil {
		return ""
	}

	return time.Duration(*p.PageAge * float64(time.Second)).Truncate(time.Second).String()
}

// PeerEvidence is a file which shows that a peer contradicted itself.
type PeerEvidence struct {
	// ID is the same at every node of every domain.
	ID    string    `json:"id"`
	Found time.Time `json:"found"`
}

// PeerRules select the registrations that pass in one direction of a peering. The
// zero value lets everything through.
type PeerRules struct {
	// Names are of agents; one that ends in * is a prefix. Empty lets all through.
	Names []string `json:"names,omitempty"`
	// Capabilities are names likewise, of which an agent has at least one.
	Capabilities []string `json:"capabilities,omitempty"`
	Kinds        []string `json:"kinds,omitempty"`
	// Records bounds the registrations that are held, and Bytes the size of their
	// records on disk; 0 is the node's default for peers.
	Records uint64 `json:"records,omitzero"`
	Bytes   uint64 `json:"bytes,omitzero"`
	// MaxLifetime clips deadlines, in seconds after they were set; 0 does not.
	MaxLifetime uint32 `json:"max_lifetime,omitzero"`
	// OnStale is hide or serve, for a peer that is unreachable for long.
	OnStale string `json:"on_stale,omitzero"`
	// OwnerShare is which part of Records and Bytes one owner may take, one in so many:
	// 1 is all, 0 one in 16. Registrations whose owner is withheld have one share together.
	OwnerShare uint32 `json:"owner_share,omitzero"`
}

// A BundleEndpoint is where a trust domain's bundle is refreshed from (SPIFFE
// Federation, 5). The zero value is none.
type BundleEndpoint struct {
	URL string `json:"url"`
	// Profile is https_spiffe or https_web.
	Profile string `json:"profile"`
	// ID is whose SVID an endpoint of https_spiffe shows; zero for any node of the
	// domain.
	ID spiffeid.ID `json:"id,omitzero"`
}

// A Peering is one domain's part of a peering with another.
type Peering struct {
	Domain string `json:"domain"`
	// State is active if it is empty.
	State string `json:"state,omitempty"`
	// Bundle is the peer's SPIFFE bundle, a JWKS object.
	Bundle RawJSON `json:"bundle"`
	// Addresses are base URLs of the peer's nodes.
	Addresses []string `json:"addresses"`
	// Gossip are host:port of their gossip listeners.
	Gossip []string `json:"gossip,omitempty"`
	// Mesh is whether mesh registrations are exported to the peer.
	Mesh           bool           `json:"mesh"`
	BundleEndpoint BundleEndpoint `json:"bundle_endpoint,omitzero"`
}

// A RedeemRequest is an invited domain's description of itself, for the domain that invited it.
type RedeemRequest struct {
	Peering
	Secret string `json:"secret"`
}

// A Redemption is the inviting domain's description of itself.
type Redemption struct {
	Peering
	// Used is whether the secret was used before, so that nothing was changed.
	Used bool `json:"used,omitzero"`
}

// PeerSettings are the settings of a peering that one side chooses. Nil leaves a
// setting as it is.
type PeerSettings struct {
	Export         *PeerRules      `json:"export,omitzero"`
	Import         *PeerRules      `json:"import,omitzero"`
	Addresses      []string        `json:"addresses,omitzero"`
	Gossip         []string        `json:"gossip,omitzero"`
	BundleEndpoint *BundleEndpoint `json:"bundle_endpoint,omitzero"`
	// Bundle is the peer's SPIFFE trust bundle, a JWKS object, in the place of the present one.
	// Without BundleEndpoint it ends the refresh, which could bring a dropped authority back.
	Bundle RawJSON `json:"bundle,omitzero"`
}

// A PeerVerb is a change of an existing peering.
type PeerVerb string

// The changes of a peering.
const (
	PeerRemove   PeerVerb = "remove"   // end it; both sides drop the other's registrations
	PeerRelease  PeerVerb = "release"  // trust a frozen peer again
	PeerExport   PeerVerb = "export"   // export mesh registrations to the peer
	PeerUnexport PeerVerb = "unexport" // stop that
	PeerSet      PeerVerb = "set"      // change the settings
)

// A PeerChange is the body of a change of a peering.
type PeerChange struct {
	Domain string   `json:"domain"`
	Verb   PeerVerb `json:"verb"`
	// PeerSettings are those of the verb set.
	PeerSettings
}

// An InviteRequest asks for an invitation.
type InviteRequest struct {
	Domain string `json:"domain"`
	// LifeSeconds is how long the invitation holds; 0 is an hour.
	LifeSeconds int64 `json:"life,omitzero"`
	// SecretHash is the SHA-256, in base64url, of the secret that completes the token: 26
	// characters of base32. Only the operator knows the secret.
	SecretHash string `json:"secret_hash"`
}

// An Invitation is a token for another domain.
type Invitation struct {
	Token string    `json:"token"`
	Until time.Time `json:"until"`
	// Fingerprints are of the inviting domain's bundle, to be compared at the other side.
	Fingerprints []string `json:"fingerprints"`
}

// TrustBundles are the bundles that a node holds.
type TrustBundles struct {
	Bundles []TrustBundle `json:"bundles"`
}

// A TrustBundle is the bundle of one trust domain, as people compare it.
type TrustBundle struct {
	Domain string `json:"domain"`
	// Fingerprints are the SHA-256 of the SubjectPublicKeyInfo of each X.509 authority,
	// in hexadecimal, sorted.
	Fingerprints []string `json:"fingerprints"`
}

// An AcceptRequest shows the token of an invitation.
type AcceptRequest struct {
	Token string `json:"token"`
	// Fingerprints, if there are any, are those that the inviting domain's bundle must have.
	Fingerprints []string `json:"fingerprints,omitempty"`
}

// An Accepted is the domain that an accepted token made a peer.
type Accepted struct {
	Domain string `json:"domain"`
	// Fingerprints are of its bundle, to be compared at the other side.
	Fingerprints []string `json:"fingerprints"`
	// Already is whether it was a peer before, so that nothing was changed.
	Already bool `json:"already,omitzero"`
}

// A KeysStatus is a domain's newest key document, for people.
type KeysStatus struct {
	Epoch uint64 `json:"epoch"`
	// Seq is the revision at which it was issued.
	Seq     uint64       `json:"seq"`
	Expires time.Time    `json:"expires,omitzero"`
	Keys    []SigningKey `json:"keys"`
	// Revoked are ids of keys.
	Revoked []string `json:"revoked,omitempty"`
}

// A SigningKey is one by which the domain's signatures are verified.
type SigningKey struct {
	// ID is its RFC 7638 thumbprint.
	ID string `json:"id"`
	// Node is a SPIFFE ID.
	Node string `json:"node"`
	// Rotated is whether the node signs by another key, and this one is accepted
	// for some minutes yet.
	Rotated bool `json:"rotated,omitzero"`
}

// A RevokeRequest revokes a signing key.
type RevokeRequest struct {
	Key string `json:"key"`
}

// An EraseRequest erases the contents of a registration that has ended.
type EraseRequest struct {
	RID string `json:"rid"`
}

// An AuditPage is a run of a node's audit log. All its lines from First to Last were read;
// Lines are those that the query selects, as they were written.
type AuditPage struct {
	// Node is the SPIFFE ID of the node that answers.
	Node  string    `json:"node"`
	Lines []RawJSON `json:"lines"`
	First uint64    `json:"first,omitzero"`
	Last  uint64    `json:"last,omitzero"`
	// Prev is the hash of the line before First, and Head that of Last.
	Prev string `json:"prev,omitzero"`
	Head string `json:"head,omitzero"`
	// More tells whether there are lines after Last.
	More bool `json:"more"`
	// Faults are the places at which the lines don't follow each other.
	Faults []string `json:"faults,omitempty"`
}

// FlaggedList are registrations that are flagged.
type FlaggedList struct {
	Flagged []Flagged `json:"flagged"`
}

// A Flagged is a registration whose texts are written for rankers and not for
// readers; it ranks below others.
type Flagged struct {
	Agent string `json:"agent"`
	// Origin is the domain that registered it.
	Origin string `json:"origin"`
	Href   string `json:"href"`
	// Flags are repetition, density or scatter.
	Flags []string `json:"flags"`
}

// A PolicyText is a policy in Cedar.
type PolicyText struct {
	// Policy is empty to go back to the built-in one.
	Policy string `json:"policy"`
	// Version is the revision at which it came into force; 0 if the domain never
	// set one.
	Version uint64 `json:"version"`
}

// A PolicyChange is the body that sets a policy.
type PolicyChange struct {
	Policy *string `json:"policy"`
	// Version is that of the policy which must be in force; nil is any.
	Version *uint64 `json:"version,omitempty"`
}

// A PolicyPreview says what a policy would change if it came into force.
type PolicyPreview struct {
	// Version is that of the policy in force.
	Version uint64 `json:"version"`
	// Peers are those that would get more or less.
	Peers []PeerPreview `json:"peers"`
	// Unknown are domains that the policy names and that are no peers.
	Unknown []UnknownDomain `json:"unknown"`
}

// A PeerPreview is what a peer would get more or less.
type PeerPreview struct {
	Domain    string         `json:"domain"`
	Withdrawn ChangedExports `json:"withdrawn"`
	// Redacted are registrations of which the peer would get fewer members.
	Redacted ChangedExports `json:"redacted"`
	Added    ChangedExports `json:"added"`
}

// ChangedExports counts registrations, and names the first of them.
type ChangedExports struct {
	Total  int      `json:"total"`
	Agents []string `json:"agents,omitempty"`
}

// An UnknownDomain is a domain that a policy names, and the peer that was probably meant.
type UnknownDomain struct {
	Domain string `json:"domain"`
	Near   string `json:"near,omitempty"`
}

// Owned is a page of the registrations that one identity owns in a domain.
type Owned struct {
	Registrations []OwnedRegistration `json:"registrations"`
	// Next is the cursor of the next page; empty on the last one.
	Next string `json:"next,omitempty"`
}

// An OwnedRegistration is one of them.
type OwnedRegistration struct {
	RID       string    `json:"rid"`
	Agent     string    `json:"agent"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Restored is the result of a restore. Positions are EPOCH.REVISION.
type Restored struct {
	// Backup is the position that was restored, Before the domain's before that,
	// and Now the one in its new epoch.
	Backup        string `json:"backup"`
	Before        string `json:"before"`
	Now           string `json:"now"`
	Registrations int    `json:"registrations"`
	// Lost is the number of registrations whose changes since the backup are undone.
	Lost int `json:"lost"`
	// Exported is the number of registrations that peers drop until their owners refresh them.
	Exported int `json:"exported"`
}
