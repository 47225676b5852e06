package wire

import "time"

// A History has the statements of a registration, the first one first.
type History struct {
	RID    string `json:"rid"`
	Agent  string `json:"agent,omitempty"` // empty if the contents were pruned or erased
	Origin string `json:"origin"`
	// Complete is whether the node has all that the domain has kept; false of another domain.
	Complete bool `json:"complete"`
	// Next is the cursor for the statements before these; empty if there are none.
	Next string `json:"next"`
	// Before and After are the paths of the histories of registrations with the same name; empty if
	// there is none.
	Before     string          `json:"before"`
	After      string          `json:"after"`
	Statements []PastStatement `json:"statements"`
	// Checkpoints are signed notes of the logs, one for each.
	Checkpoints []string `json:"checkpoints"`
}

// A PastStatement is a statement of a History.
type PastStatement struct {
	Log      string    `json:"log"`   // its name
	Index    uint64    `json:"index"` // of its entry
	At       time.Time `json:"at"`
	Revision uint64    `json:"revision"`
	// State is put, end, withheld (policy hides the contents), pruned (only hash and time are kept) or erased (the
	// same, by an operator's order).
	State string `json:"state"`
	// Reason of an end is expired (the deadline had passed) or removed; empty if it isn't known any more.
	Reason string `json:"reason"`
	// Owner, Registrant, RegisteredBy and TransferredBy are empty where they are withheld.
	Owner         string         `json:"owner"`
	Registrant    string         `json:"registrant"`
	RegisteredBy  string         `json:"registered_by"`
	TransferredBy string         `json:"transferred_by"`
	Redacted      bool           `json:"redacted"`
	Document      map[string]any `json:"document"`
	// Changed are the members that are not as in the statement before, as far as both are shown.
	Changed []string `json:"changed"`
	// BroughtBy is the member of the domain that brought the change to the leader; empty if none did, and
	// without Payload.
	BroughtBy string   `json:"brought_by"`
	Hash      string   `json:"hash"`    // SHA-256 of Payload, base64url
	Payload   string   `json:"payload"` // empty once it was pruned or erased
	Path      []string `json:"path"`    // from its entry to the root of the log's checkpoint, base64url
}
