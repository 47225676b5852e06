package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Format is a value of -o: how data is printed. The zero Format is table.
type Format string

// The output formats.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide"
	FormatJSON  Format = "json"
	FormatJSONL Format = "jsonl"
	FormatYAML  Format = "yaml"
)

// Formats returns the values of -o.
func Formats() []string {
	var names []string
	for _, f := range []Format{FormatTable, FormatWide, FormatJSON, FormatJSONL, FormatYAML} {
		names = append(names, string(f))
	}

	return names
}

// String returns the format's name.
func (f *Format) String() string {
	if *f == "" {
		return string(FormatTable)
	}

	return string(*f)
}

// Type names the flag's value in the help.
func (f *Format) Type() string { return "FORMAT" }

// Set parses the value of -o.
func (f *Format) Set(name string) error {
	if !slices.Contains(Formats(), name) {
		return fmt.Errorf("must be one of %s", strings.Join(Formats(), ", "))
	}

	*f = Format(name)

	return nil
}

// IsTable reports whether the format is a table for people, wide or not.
func (f *Format) IsTable() bool { return *f == "" || *f == FormatTable || *f == FormatWide }

// An Answer is the data that a command prints, in all formats.
type Answer struct {
	Body  []byte // JSON, as the server sent it if it comes from there
	Items string // the member of Body with the list that jsonl prints; empty if Body is one object
	Table Table  // the same data for people
}

// Print prints an answer on standard output in the format of -o.
func (c *Console) Print(answer Answer) error {
	var (
		out []byte
		err error
	)
	switch c.Format {
	case FormatJSON:
		out = answer.Body

		// JSON stays byte for byte, but on a terminal the next prompt needs a line of its own.
		if c.IsTerminal && !bytes.HasSuffix(out, []byte("\n")) {
			out = append(slices.Clip(out), '\n')
		}

	case FormatJSONL:
		out, err = answer.lines()

	case FormatYAML:
		out, err = AppendYAML(nil, answer.Body)

	default:
		return c.printTable(answer.Table)
	}

	if err != nil {
		return err
	}

	_, err = c.Stdout.Write(out)

	return err
}

// PrintValue prints data of this program itself: value as JSON, or the table. Items is the
// member of value that jsonl prints one element a line.
func (c *Console) PrintValue(value any, items string, t Table) error {
	body, err := Marshal(value)
	if err != nil {
		return err
	}

	return c.Print(Answer{body, items, t})
}

// PrintDocument prints a JSON document unchanged, or in the format of -o if that is given. A
// document has no table, so -o table prints it unchanged, too.
func (c *Console) PrintDocument(body []byte) error {
	if c.Format.IsTable() {
		_, err := c.Stdout.Write(append(bytes.TrimSuffix(body, []byte("\n")), '\n'))
		return err
	}

	return c.Print(Answer{Body: body})
}

// PrintBody prints the body of a response that has no table. An empty body prints nothing.
func (c *Console) PrintBody(body []byte) error {
	if len(body) == 0 || c.Format.IsTable() {
		return nil
	}

	return c.Print(Answer{Body: body})
}

// Marshal returns value as JSON with a newline at its end, for data of this program. A
// server's responses are printed unchanged instead.
func Marshal(value any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)

	return buf.Bytes(), err
}

// lines returns each item of the answer as compact JSON on its own line.
func (a Answer) lines() ([]byte, error) {
	items := [][]byte{a.Body}
	if a.Items != "" {
		var err error
		if items, err = Elements(a.Body, a.Items); err != nil {
			return nil, err
		}
	}

	var out []byte
	for _, item := range items {
		// Compact changes the text in place, and the body may still be printed.
		line := jsontext.Value(bytes.Clone(item))
		if err := line.Compact(); err != nil {
			return nil, err
		}

		out = append(out, line...)
		out = append(out, '\n')
	}

	return out, nil
}

// Elements returns the elements of the array that is a member of a JSON object, byte for
// byte.
func Elements(object []byte, name string) ([][]byte, error) {
	members, err := directory.ParseObject(object)
	if err != nil {
		return nil, err
	}

	array, ok := strictjson.FindMember(members, name)
	if !ok {
		return nil, fmt.Errorf("the response has no member %q", name)
	}

	return SplitArray(array)
}

// ErrNoArray is returned by SplitArray for JSON that is not an array.
var ErrNoArray = errors.New("not a JSON array")

// SplitArray returns the elements of a JSON array byte for byte. It accepts elements that
// are not strict JSON; their reader judges them. Text behind the array is an error.
func SplitArray(array []byte) ([][]byte, error) {
	decoder := jsontext.NewDecoder(
		bytes.NewReader(array), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	)
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '[' {
		return nil, errors.Join(ErrNoArray, err)
	}

	var items [][]byte
	for decoder.PeekKind() != ']' {
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, err
		}

		// The decoder uses its buffer again for the next value.
		items = append(items, bytes.Clone(value))
	}

	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}

	// Another array behind the first one would be lost in silence.
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("text behind the end of the array"), err)
	}

	return items, nil
}
