package directory

// A Binding is one way to reach an agent.
type Binding struct {
	Protocol         string
	Endpoint         string
	MediaTypes       []string
	InteractionModel string
	Transport        string // of A2A: JSONRPC, GRPC, HTTP+JSON as the card names it
	Envelope         string // the envelope of the input: woa, or none
}

// A Capability is one declared ability of an agent.
type Capability struct {
	Name, Type, Description   string
	Operation                 string // the agent's own name for it, if that is not Name
	Tags                      []string
	InputSchema, OutputSchema []byte // JSON as written; nil when absent
	Raw                       []byte // the capability as written, where the kind has such an object; else nil
}

// Types of capabilities that are made of other kinds' members.
const (
	CapabilitySkill = "skill"
	CapabilityTool  = "tool"
)

// DefaultOperation is the name of the operation of an invocation that names none, in
// WoA documents (gaikwad 5.1).
const DefaultOperation = "default"

// StatusActive is the status of a document that states none.
const StatusActive = "active"

// An Example is a request that an agent says it serves.
type Example struct {
	ID, Text, Language        string
	Tags                      []string
	InputSchema, OutputSchema []byte // JSON as written; nil when absent
}

// A Projection is the common form of a document of any kind, which every surface reads
// (docs/spec/views.md, "How a view is made"). It is a pure function of the document and of the
// agent's name, and is never modified.
type Projection struct {
	Name, Description, Base string
	Protocols               []string
	Bindings                []Binding
	Capabilities            []Capability
	Tags                    []string // of the agent itself
	Examples                []Example
	Languages               []string
	Authentication          []byte // JSON as written; nil when absent
	Constraints             []byte // JSON as written; nil when absent
	Status, Version, Vendor string // Status is active where the document has none
}

// Bounds on a document's members, in bytes where they are not counts (AD-042,
// AD-050, AD-052, XU-040).
const (
	MaxCapabilities   = 128
	MaxTags           = 64 // of each capability, and of the agent
	MaxTag            = 128
	MaxCapabilityType = 64
	MaxDescription    = 4096
)
