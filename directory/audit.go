package directory

// An AuditEvent is what the audit trail tells of one change, or of one refusal
// (trust.md, "Audit"): who asked for what, never what was in it.
type AuditEvent struct {
	RequestID string   `json:"request_id,omitzero"`
	Action    string   `json:"action"` // such as register, refresh, peer.write
	Owner     Identity `json:"owner,omitzero"`
	Actor     Identity `json:"actor,omitzero"` // nobody for an anonymous caller
	Authn     string   `json:"authn,omitzero"` // how the actor was shown
	Agent     string   `json:"agent,omitzero"`
	RID       RID      `json:"rid,omitzero"`
	RIDs      []RID    `json:"rids,omitzero"` // of a change of many
	// of an operator's change: a domain, a node; of a transfer: the new owner
	Target   string   `json:"target,omitzero"`
	Revision string   `json:"revision,omitzero"` // EPOCH.REVISION of the change
	Outcome  string   `json:"outcome,omitzero"`  // ok, or the problem
	Policies []string `json:"policies,omitzero"` // that decided
	// Lifetime is what was granted, and Credential for how long what showed the actor is
	// good as a whole, of a token what is left of it: both in seconds.
	Lifetime   uint32 `json:"lt,omitzero"`
	Credential int64  `json:"credential_s,omitzero"`
}

// A Decision is policy's answer to one question, with the names of the policies
// that decided it.
type Decision struct {
	Allow    bool
	Policies []string
	// Redaction is which members are seen, where the answer is yes and the question one
	// about a registration: read, or export.
	Redaction Redaction
}
