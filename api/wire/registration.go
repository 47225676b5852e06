package wire

import (
	"strings"
	"time"
)

// An Item is one registration in a lookup's answer or in an event of a watch. A
// Registration has all of it.
type Item struct {
	// Agent is the name that the agent is registered under.
	Agent string `json:"agent"`
	// Base is the URL at which the agent is reached.
	Base        string `json:"base"`
	Description string `json:"description"`
	// Protocols are those that the agent speaks.
	Protocols []string `json:"protocols"`
	// Capabilities have their name and type alone.
	Capabilities []CapabilityName `json:"capabilities"`
	// Status is empty for an active agent.
	Status string `json:"status"`
	// Href is the path of the registration at the directory that answered.
	Href string `json:"href"`
	// Kind is the document's kind; empty for ad.
	Kind string `json:"kind"`
	// Projected is whether the document is of another kind and is shown as if it
	// were of kind ad.
	Projected bool `json:"projected"`
	// Redacted is whether members are withheld from this caller.
	Redacted   bool       `json:"redacted"`
	Provenance Provenance `json:"provenance"`
}

// RID returns the registration's id, which is the last segment of Href.
func (i *Item) RID() string { return lastSegment(i.Href) }

// A CapabilityName is a capability as an item has it.
type CapabilityName struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// A Registration is one registration in full (draft-jimenez 4.3).
type Registration struct {
	// Agent is the name that the agent is registered under.
	Agent string `json:"agent"`
	// Name is the agent's display name.
	Name string `json:"name"`
	// Base is the URL at which the agent is reached.
	Base        string `json:"base"`
	Description string `json:"description"`
	// Protocols are those that the agent speaks.
	Protocols    []string     `json:"protocols"`
	Capabilities []Capability `json:"capabilities"`
	Version      string       `json:"version"`
	Vendor       string       `json:"vendor"`
	// Status is active, or the document's own status.
	Status string `json:"status"`
	// Href is the path of the registration at the directory that answered.
	Href string `json:"href"`
	// LifetimeSeconds is the lifetime that was granted; see Lifetime.
	LifetimeSeconds uint32    `json:"lt"`
	ExpiresAt       time.Time `json:"expires_at"`
	RegisteredAt    time.Time `json:"registered_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	// Kind is the document's kind; empty for ad.
	Kind string `json:"kind"`
	// Projected is whether the document is of another kind and is shown as if it
	// were of kind ad.
	Projected bool `json:"projected"`
	// Redacted is whether members are withheld from this caller.
	Redacted   bool       `json:"redacted"`
	Provenance Provenance `json:"provenance"`
}

// RID returns the registration's id, which is the last segment of Href.
func (r *Registration) RID() string { return lastSegment(r.Href) }

func lastSegment(href string) string { return href[strings.LastIndexByte(href, '/')+1:] }

// A Capability is an ability that an agent claims.
type Capability struct {
	Name         string   `json:"name"`
	Type         string   `json:"type"`
	Description  string   `json:"description"`
	Tags         []string `json:"tags"`
	InputSchema  RawJSON  `json:"input_schema"`
	OutputSchema RawJSON  `json:"output_schema"`
}

// Provenance says where a registration comes from, who vouches for it and how
// fresh it is. A caller that asked for it in brief has Authority, Revision,
// ExpiresAt and Verification alone.
type Provenance struct {
	// Authority is the trust domain that the agent is registered in.
	Authority string `json:"origin_authority"`
	// Service is the base URL of that domain's directory, if known.
	Service string `json:"origin_service"`
	// Href is the registration's URL there, if known.
	Href string `json:"origin_href"`
	// Signature is the path of the signed record at the directory that answered.
	Signature string `json:"origin_signature"`
	// Registrant is the identity that authenticated when the contents were registered, for
	// callers who may see it.
	Registrant string `json:"registrant"`
	// RegistrantState is, for a registration of another domain, verified if all identities
	// that are named are of that trust domain, and claimed otherwise.
	RegistrantState string `json:"registrant_state"`
	// Owner is the identity that may change the registration, if it isn't the registrant.
	Owner string `json:"owner"`
	// RegisteredBy is the commissioning tool that registered the contents for the owner.
	RegisteredBy string `json:"registered_by"`
	// TransferredBy is the operator that gave the registration to its owner.
	TransferredBy string `json:"transferred_by"`
	// ImportedFrom is the URI of the source from which the contents were imported.
	ImportedFrom string `json:"imported_from"`
	// Revision is the origin's revision at which the contents last changed.
	Revision     uint64    `json:"revision"`
	RegisteredAt time.Time `json:"registered_at"`
	UpdatedAt    time.Time `json:"updated_at"`
	// ExpiresAt is the deadline, unless the registration is refreshed.
	ExpiresAt time.Time `json:"expires_at"`
	// ReceivedAt and ReceivedFrom say when this directory received a registration
	// of another domain, and from which domain's node; empty for its own.
	ReceivedAt   time.Time `json:"received_at"`
	ReceivedFrom string    `json:"received_from"`
	// Visibility says who outside the domain may see a registration of the directory's own
	// domain: domain, mesh or peers:DOMAIN,... In a body it is absent if it is policy's default;
	// the client's Get has it from HeaderVisibility then.
	Visibility string `json:"visibility"`
	// Flags are doubts about the agent's name: mixed_script (its letters are of several
	// scripts), confusable (it looks like an earlier one of its domain that the caller sees)
	// and format (it has characters that people don't see).
	Flags        []string     `json:"flags"`
	Verification Verification `json:"verification"`
}

// Verification is the result of the verification by the directory that answered.
type Verification struct {
	// State is local for a registration of the directory's own domain, and verified
	// for one of another domain whose signature holds.
	State string `json:"state"`
	// Unconfirmed is whether it was restored from a backup and not refreshed since; of another domain
	// whether only one of that domain's nodes has announced it for over a minute.
	Unconfirmed bool `json:"unconfirmed"`
	// Disputed is whether its origin contradicted itself and is frozen.
	Disputed bool `json:"disputed"`
	// Key is the id of the key that signed it.
	Key string `json:"key"`
	// Logged is whether its statement is in the ledger of its origin: for another domain, whether
	// the directory that answered has compared that ledger with what its origin signed.
	Logged bool `json:"logged"`
	// Log is where; nil unless it is logged, and in lists.
	Log *Inclusion `json:"log"`
	// Witnessed is whether the witnesses that its origin's policy asks for have cosigned the ledger with
	// its statement.
	Witnessed bool `json:"witnessed"`
	// Witnesses have cosigned it; nil unless it is witnessed, and in lists.
	Witnesses []Cosignature `json:"witnesses"`
	CheckedAt time.Time     `json:"checked_at"`
	// Probe is the agent's own description, compared; nil if it was not asked.
	Probe *Probe `json:"probe"`
}

// A Cosignature is when a witness has cosigned a checkpoint of a ledger.
type Cosignature struct {
	Name string    `json:"name"` // of the witness's key
	At   time.Time `json:"at"`
}

// An Inclusion is where a registration's statement is in a ledger.
type Inclusion struct {
	Origin string    `json:"origin"` // the name of the log
	Index  uint64    `json:"index"`
	At     time.Time `json:"at"`
}

// A Probe compares a registration with its agent's own description at its base.
type Probe struct {
	// State is verified, mismatch or unreachable.
	State string `json:"state"`
	// Members are those of a mismatch.
	Members []string `json:"members"`
	// Reason says why the agent could not be read.
	Reason    string    `json:"reason"`
	CheckedAt time.Time `json:"checked_at"`
}

// A Removal is the end of one registration in a watch.
type Removal struct {
	Agent  string `json:"agent"`
	Href   string `json:"href"`
	RID    string `json:"rid"`
	Origin string `json:"origin"`
	// Why is removed, expired or hidden.
	Why string `json:"why"`
}

// A Listing is one page of a lookup's answer.
type Listing struct {
	Agents []Item `json:"agents"`
}

// Granted is the body that answers a registration or a refresh which was granted
// another lifetime than it had asked for.
type Granted struct {
	LifetimeSeconds uint32 `json:"lt,omitzero"`
}

// A Renewal asks for a new deadline of one registration.
type Renewal struct {
	// ID is a rid or a name.
	ID string `json:"id"`
	// LifetimeSeconds is the lifetime that is wanted; 0 keeps the one that was granted.
	LifetimeSeconds uint32 `json:"lt,omitempty"`
}

// A Renewed is the outcome of a Renewal: the answer that it would have had alone.
type Renewed struct {
	// ID is as it was asked.
	ID     string `json:"id"`
	Status int    `json:"status"`
	// LifetimeSeconds was granted; 0 if the renewal was refused.
	LifetimeSeconds uint32 `json:"lt"`
	// Problem says why the renewal was refused; empty if it was not.
	Problem string `json:"problem"`
	Detail  string `json:"detail"`
}

// A NewOwner names an identity by a SPIFFE or WIMSE URI or as oauth:ISSUER#SUBJECT.
type NewOwner struct {
	Owner string `json:"owner"`
}

// A Transfer is the body of a step of a transfer. Its owner offers a registration to Owner,
// for ExpiresIn seconds; an operator moves it there at once with Force; and the identity to
// which it is offered answers with Accept alone.
type Transfer struct {
	Owner     string  `json:"owner,omitzero"`
	ExpiresIn *uint32 `json:"expires_in,omitzero"`
	Force     bool    `json:"force,omitzero"`
	Accept    *bool   `json:"accept,omitzero"`
}

// An Offer is an open offer of a registration to another identity.
type Offer struct {
	RID   string `json:"rid"`
	Agent string `json:"agent"`
	Owner string `json:"owner"`
	To    string `json:"to"`
	// Statement is the revision of the contents that are offered.
	Statement uint64    `json:"statement"`
	ExpiresAt time.Time `json:"expires_at"`
	// Changed is whether the registration has other contents by now: the offer can't be
	// accepted, and its owner may make another.
	Changed bool `json:"changed,omitzero"`
}

// Offers are the open offers that an identity makes and is made.
type Offers struct {
	Transfers []Offer `json:"transfers"`
}

// HeaderVisibility says in the answer to a write, or to a read of one registration, who outside
// the domain may see a registration of the directory's own domain: domain, mesh or
// peers:DOMAIN,...
const HeaderVisibility = "Roster-Visibility"

// An Audience lists the peers that a registration of the domain is sent to, or withheld from.
type Audience struct {
	Agent      string      `json:"agent"`
	RID        string      `json:"rid"`
	Visibility string      `json:"visibility"`
	Peers      []Recipient `json:"peers"`
}

// A Recipient is a peer, and the decision whether it gets a registration.
type Recipient struct {
	Domain string `json:"domain"`
	Sent   bool   `json:"sent"`
	// Reason is why it is withheld.
	Reason string `json:"reason,omitempty"`
	// Policies are those that decided, if policy was asked.
	Policies []string `json:"policies,omitempty"`
	// Withheld are the members of the document that the peer does not get.
	Withheld []string `json:"withheld,omitempty"`
}

// The reasons of a Recipient, in the order in which they are looked for.
const (
	WithheldInactive    = "inactive"     // the peering is pending
	WithheldNotExported = "not-exported" // the operator does not export to the peer
	WithheldVisibility  = "visibility"   // of the registration
	WithheldRules       = "rules"        // the peering's rules for exports
	WithheldPolicy      = "policy"
	WithheldUnconfirmed = "unconfirmed" // since a restore its owner has not refreshed it
)
