package kinds

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/roster-mesh/roster/directory"
)

// projectors has the kinds that this release accepts. project makes the projection of a
// document, and name returns the agent name in it. None of the functions may use this table.
var projectors = map[directory.Kind]struct {
	project func(agent string, doc *object) *directory.Projection
	name    func(doc *object) string
}{
	directory.KindAD:      {projectAD, nameOfAD},
	directory.KindProfile: {projectProfile, nameOfProfile},
	directory.KindAIDIP:   {projectAIDIP, nameOfAIDIP},
	directory.KindWoA:     {projectWoA, nameOfWoA},
	directory.KindA2A:     {projectA2A, nameOfA2A},
	directory.KindMCP:     {projectMCP, nameOfMCP},
	directory.KindOASF:    {projectOASF, nameOfOASF},
}

// Project validates a document of a known kind and projects it. Its errors are
// BadDocument or TooManyCapabilities, with a pointer to the member that is
// wrong, and BadName. They have all faults of the document, up to MaxViolations.
func Project(agent string, d directory.Document) (*directory.Projection, error) {
	return validate(agent, d, readDocument(d))
}

// Check is Project for a document that is about to be registered: it also returns the members
// that the kind doesn't know and whose names are near to a known one (XU-003, XU-044).
func Check(agent string, d directory.Document) (*directory.Projection, []Misspelling, error) {
	doc := readDocument(d)
	doc.reading.spelling = true

	projection, err := validate(agent, d, doc)

	return projection, doc.reading.misspellings(), err
}

func validate(agent string, d directory.Document, doc *object) (*directory.Projection, error) {
	doc.reading.schemas = true

	projection, err := project(agent, d.Kind(), doc)
	if err == nil {
		doc.checkAllURLs()

		err = doc.reading.err()
	}

	if err != nil {
		return nil, nameKind(d, err)
	}

	return projection, nil
}

// nameKind returns the error of a document, after the kind that it has, if it was taken for
// another one: all other faults follow from that.
func nameKind(d directory.Document, err error) error {
	var refusal *directory.Error

	kind, certain := Recognise(d.Members())
	if !certain || kind == d.Kind() || !errors.As(err, &refusal) {
		return err
	}

	named := *refusal
	named.Problem = directory.BadDocument
	named.Pointer = ""
	named.Detail = fmt.Sprintf("this looks like %s: add kind=%s, or correct it as kind=%s", Title(kind), kind, d.Kind())

	// The fault of the kind takes the first place.
	faults := refusal.Violations[:min(len(refusal.Violations), directory.MaxViolations-1)]
	named.Violations = append([]directory.Violation{{Detail: named.Detail}}, faults...)

	return &named
}

// Reproject projects a document from a log or a store, which Project accepted once, in this
// release or in another. It is cheaper, and refuses nothing of a known kind: an invalid member
// counts as absent.
func Reproject(agent string, d directory.Document) (*directory.Projection, error) {
	return project(agent, d.Kind(), readDocument(d))
}

func project(agent string, k directory.Kind, doc *object) (*directory.Projection, error) {
	kind, ok := projectors[k]
	if !ok {
		return nil, directory.Refuse(directory.BadDocument, "this node knows no documents of kind %q", k)
	}

	projection := kind.project(agent, doc)
	projection.Status = cmp.Or(projection.Status, directory.StatusActive)

	return projection, nil
}

// DefaultName returns the agent name that an imported document of this kind has
// where none is given (spec/views.md, "How a view is made").
func DefaultName(d directory.Document) (string, error) {
	kind, ok := projectors[d.Kind()]
	if !ok {
		return "", directory.Refuse(directory.BadDocument, "this node knows no documents of kind %q", d.Kind())
	}

	doc := readDocument(d)

	name := kind.name(doc)
	if err := doc.reading.err(); err != nil {
		return "", err
	}

	return directory.ParseName(name)
}
