package directory

// A Binding is one way to reach an agent.
type Binding struct {
	Protocol         string
	Endpoint         string
	MediaTypes       []string
	InteractionModel string
	Transport        string // of A2A: JSONRPC, GRPC, HTTP+JSON as the card names it
}

// A Capability is what an agent says it can do.
type Capability struct {
	Name, Type, Description   string
	Tags                      []string
	InputSchema, OutputSchema []byte // JSON as written; nil when absent
	Raw                       []byte // the capability as written, where the kind has such an object; else nil
}

// An Example is a request that an agent says it serves.
type Example struct {
	ID, Text, Language string
	Tags               []string
}

// A Projection is what every surface needs to know of a document, whatever its
// kind (model.md, "How a view is made"). It is a pure function of the document
// and is never modified.
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
	Status, Version, Vendor string
}

// projectors has the function into the projected form of each kind that this
// release knows.
var projectors = map[Kind]func(d Document) (*Projection, error){}

// Project validates a document of a known kind and projects it.
func Project(agent string, d Document) (*Projection, error) { panic("x") }

// DefaultName returns the agent name that an imported document of this kind has
// where none is given (spec/views.md, "Columns missing").
func DefaultName(d Document) (string, error) { panic("x") }
