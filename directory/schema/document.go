package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A document is a JSON value as a flat tree in preorder: a node is followed by its
// items, or by its members as pairs of name and value.
type document struct {
	raw   []byte
	nodes []node
	texts map[uint32][]byte // of strings that are written with escapes
	index map[uint32]map[string]uint32
}

// A node is one value, or the name of a member. Its numbers fit into 32 bits since
// a document has at most maxBytes bytes.
type node struct {
	from, to uint32 // its bytes in raw
	size     uint32 // nodes of the subtree, itself included
	count    uint32 // items or members
	kind     jsontext.Kind
}

const (
	maxBytes = 1 << 30
	maxDepth = 1000 // of a value; callers have lower limits
	// maxDigits is how many digits stand before or behind the point of a number, at
	// most. A number of ten bytes may have a million digits, and comparisons are exact.
	maxDigits = 400
	// indexed is the least number of members of an object that gets an index of names.
	indexed = 12
)

// A numberError names a number with more than maxDigits digits.
type numberError struct{ at string }

func (e *numberError) Error() string { return fmt.Sprintf("a number has over %d digits", maxDigits) }

// parse reads one JSON value, with nothing behind it but white space.
func parse(raw []byte) (*document, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("the value has %d bytes; at most %d are judged", len(raw), maxBytes)
	}

	// Each value begins the document or follows one of these bytes, so that the nodes
	// need no second allocation.
	room := 1
	for _, sep := range []byte("[{,:") {
		room += bytes.Count(raw, []byte{sep})
	}

	doc := &document{raw: raw, nodes: make([]node, 0, min(room, len(raw)))}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(raw))

	if err := doc.read(decoder, 0); err != nil {
		return nil, fmt.Errorf("not one JSON value: %w", err)
	}

	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}

	return doc, nil
}

func (d *document) read(decoder *jsontext.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}

	// The node takes its place before its parts are read, because they follow it in preorder.
	at := uint32(len(d.nodes))
	d.nodes = append(d.nodes, node{})

	kind := decoder.PeekKind()
	if kind != '{' && kind != '[' {
		return d.readScalar(decoder, at)
	}

	if _, err := decoder.ReadToken(); err != nil {
		return err
	}

	from := uint32(decoder.InputOffset()) - 1
	closing := kind + 2 // of { and [
	count := uint32(0)

	for decoder.PeekKind() != closing {
		if kind == '{' {
			name := uint32(len(d.nodes))
			d.nodes = append(d.nodes, node{})

			if err := d.readScalar(decoder, name); err != nil {
				return err
			}
		}

		if err := d.read(decoder, depth+1); err != nil {
			return err
		}

		count++
	}

	if _, err := decoder.ReadToken(); err != nil {
		return err
	}

	d.nodes[at] = node{
		from:  from,
		to:    uint32(decoder.InputOffset()),
		size:  uint32(len(d.nodes)) - at,
		count: count,
		kind:  kind,
	}

	return nil
}

func (d *document) readScalar(decoder *jsontext.Decoder, at uint32) error {
	value, err := decoder.ReadValue()
	if err != nil {
		return err
	}

	to := uint32(decoder.InputOffset())
	kind := value.Kind()

	if kind == '0' && tooManyDigits(string(value)) {
		return &numberError{string(decoder.StackPointer())}
	}

	if kind == '"' && bytes.IndexByte(value, '\\') >= 0 {
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return err
		}

		if d.texts == nil {
			d.texts = map[uint32][]byte{}
		}

		d.texts[at] = text
	}

	// The beginning follows from the end, because white space before the value is not part of it.
	d.nodes[at] = node{from: to - uint32(len(value)), to: to, size: 1, kind: kind}

	return nil
}

func tooManyDigits(number string) bool {
	if len(number) > maxDigits {
		return true
	}

	at := strings.IndexAny(number, "eE")
	if at < 0 {
		return false
	}

	exponent, err := strconv.Atoi(number[at+1:])

	return err != nil || exponent > maxDigits || exponent < -maxDigits
}

func (d *document) kind(at uint32) jsontext.Kind { return d.nodes[at].kind }

func (d *document) bytes(at uint32) []byte { return d.raw[d.nodes[at].from:d.nodes[at].to] }

// text returns the string at a node without its quotes and escapes. The bytes are
// the document's own; they are not to be changed.
func (d *document) text(at uint32) []byte {
	if text, ok := d.texts[at]; ok {
		return text
	}

	raw := d.bytes(at)

	return raw[1 : len(raw)-1]
}

// children yields the items of an array, or the names of an object's members, whose
// values stand behind them.
func (d *document) children(at uint32) func(yield func(i int, child uint32) bool) {
	return func(yield func(int, uint32) bool) {
		parent := d.nodes[at]
		child := at + 1

		for i := range int(parent.count) {
			if !yield(i, child) {
				return
			}

			if parent.kind == '{' {
				child++
			}

			child += d.nodes[child].size
		}
	}
}

// member returns the value of a member, and how many names were read to find it.
func (d *document) member(at uint32, name string) (value uint32, found bool, steps int) {
	count := d.nodes[at].count
	if count < indexed {
		for _, child := range d.children(at) {
			if string(d.text(child)) == name {
				return child + 1, true, int(count)
			}
		}

		return 0, false, int(count)
	}

	names, ok := d.index[at]
	if !ok {
		names = make(map[string]uint32, count)
		for _, child := range d.children(at) {
			names[string(d.text(child))] = child + 1
		}

		if d.index == nil {
			d.index = map[uint32]map[string]uint32{}
		}

		d.index[at] = names

		// The caller that needs the index first pays for making it.
		steps = int(count)
	}

	value, found = names[name]

	return value, found, steps + 1
}

// item returns an item of an array.
func (d *document) item(at uint32, i int) (item uint32, found bool) {
	for j, child := range d.children(at) {
		if j == i {
			return child, true
		}
	}

	return 0, false
}

// pointer appends a name or an index to a JSON pointer (RFC 6901).
func pointer(to, name string) string {
	return to + "/" + escapePointer.Replace(name)
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")
