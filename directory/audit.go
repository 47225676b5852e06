package directory

// An AuditEvent is the audit log's record of one change or refusal (docs/trust.md): the
// caller, the action and its target, never the contents.
type AuditEvent struct {
	RequestID string   `json:"request_id,omitzero"`
	Action    string   `json:"action"` // such as register, refresh, peer.write
	Owner     Identity `json:"owner,omitzero"`
	Actor     Identity `json:"actor,omitzero"` // zero for an anonymous caller
	Authn     string   `json:"authn,omitzero"` // how the actor authenticated
	Agent     string   `json:"agent,omitzero"`
	RID       RID      `json:"rid,omitzero"`
	RIDs      []RID    `json:"rids,omitzero"` // of a change of many
	// of an operator's change: a domain, a node; of a transfer: the new owner
	Target   string   `json:"target,omitzero"`
	Revision string   `json:"revision,omitzero"` // EPOCH.REVISION of the change
	Outcome  string   `json:"outcome,omitzero"`  // ok, or the problem
	Policies []string `json:"policies,omitzero"` // that decided
	// Lifetime is the lifetime granted, and Credential the total or remaining validity of
	// the actor's certificate or token: both in seconds.
	Lifetime   uint32 `json:"lt,omitzero"`
	Credential int64  `json:"credential_s,omitzero"`
}

// A Decision is policy's answer to one question, with the names of the policies
// that decided it.
type Decision struct {
	Allow    bool
	Policies []string
	// Redaction says which members are visible, if the answer is yes and the question is
	// about reading or exporting a registration.
	Redaction Redaction
}
