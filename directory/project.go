package directory

// A Binding is one way to reach an agent.
type Binding struct {
	Protocol         string
	Endpoint         string
	MediaTypes       []string
	InteractionModel string
	Transport        string // of A2A: JSONRPC, GRPC, HTTP+JSON as the card names it
	Envelope         string // what the input is wrapped in: woa, or nothing
}

// A Capability is what an agent says it can do.
type Capability struct {
	Name, Type, Description   string
	Operation                 string // what the agent itself calls it, where that is not Name
	Tags                      []string
	InputSchema, OutputSchema []byte // JSON as written; nil when absent
	Raw                       []byte // the capability as written, where the kind has such an object; else nil
}

// Types of capabilities that are made of other kinds' members.
const (
	typeSkill = "skill"
	typeTool  = "tool"
)

// StatusActive is the status of a document that states none.
const StatusActive = "active"

// An Example is a request that an agent says it serves.
type Example struct {
	ID, Text, Language        string
	Tags                      []string
	InputSchema, OutputSchema []byte // JSON as written; nil when absent
}

// A Projection is what every surface needs to know of a document, whatever its
// kind (model.md, "How a view is made"). It is a pure function of the document
// and of the agent's name, and is never modified.
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

// projectors has the kinds that this release takes: what makes the projected
// form of a document, and the agent name that a document brings itself. None of
// the functions may use this table.
var projectors = map[Kind]struct {
	project func(agent string, doc *object) *Projection
	name    func(doc *object) string
}{
	KindAD:      {projectAD, nameOfAD},
	KindProfile: {projectProfile, nameOfProfile},
	KindAIDIP:   {projectAIDIP, nameOfAIDIP},
	KindWoA:     {projectWoA, nameOfWoA},
	KindA2A:     {projectA2A, nameOfA2A},
	KindMCP:     {projectMCP, nameOfMCP},
	KindOASF:    {projectOASF, nameOfOASF},
}

// Project validates a document of a known kind and projects it. Its errors are
// BadDocument or TooManyCapabilities, with a pointer to the member that is
// wrong, and BadName.
func Project(agent string, d Document) (*Projection, error) {
	doc := readDocument(d)
	doc.reading.schemas = true
	p, err := project(agent, d.Kind(), doc)
	if err == nil {
		err = doc.reading.err()
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Reproject projects a document that Project accepted once, in this release or
// in another: what is read from a log or a store. It is cheaper, and refuses
// nothing of a known kind: a member that is not as it should be counts as absent.
func Reproject(agent string, d Document) (*Projection, error) {
	return project(agent, d.Kind(), readDocument(d))
}

func project(agent string, k Kind, doc *object) (*Projection, error) {
	kind, ok := projectors[k]
	if !ok {
		return nil, Refuse(BadDocument, "this node knows no documents of kind %q", k)
	}
	p := kind.project(agent, doc)
	if p.Status == "" {
		p.Status = StatusActive
	}
	return p, nil
}

// DefaultName returns the agent name that an imported document of this kind has
// where none is given (spec/views.md, "Columns missing").
func DefaultName(d Document) (string, error) {
	kind, ok := projectors[d.Kind()]
	if !ok {
		return "", Refuse(BadDocument, "this node knows no documents of kind %q", d.Kind())
	}
	doc := readDocument(d)
	name := kind.name(doc)
	if err := doc.reading.err(); err != nil {
		return "", err
	}
	return ParseName(name)
}
