package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A format is how data is printed: a value of -o.
type format string

var formats = []string{"table", "wide", "json", "jsonl", "yaml"}

func (f *format) String() string {
	if *f == "" {
		return formats[0]
	}
	return string(*f)
}

// Type names the flag's values in the help.
func (f *format) Type() string { return "FORMAT" }

// Set is called with what stands behind -o.
func (f *format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("it is one of %s", strings.Join(formats, ", "))
	}
	*f = format(s)
	return nil
}

// An answer is what a verb prints, in all formats.
type answer struct {
	body  []byte // JSON as it came
	items string // the member of body that lists things; empty where body is the one thing
	table table  // for people
}

// A table has a heading for each column and a cell for each of them in each row.
// Headings that begin with + are of -o wide only.
type table struct {
	head []string
	rows [][]string
}

// print prints an answer on standard output in the format that was asked for.
func (a *app) print(ans answer) error {
	var out []byte
	var err error
	switch a.output.String() {
	case "json":
		out = ans.body
		if a.terminal && !bytes.HasSuffix(out, []byte("\n")) {
			out = append(slices.Clip(out), '\n')
		}
	case "jsonl":
		out, err = ans.lines()
	case "yaml":
		out, err = appendYAML(nil, ans.body)
	default:
		out = a.draw(ans.table)
	}
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(out)
	return err
}

// marshal returns v as JSON with a line break behind it. It is for what this
// program itself has to say; a directory's answers are printed as they came.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// printOwn prints what this program itself has to say: an answer of v.
func (a *app) printOwn(v any, items string, t table) error {
	body, err := marshal(v)
	if err != nil {
		return err
	}
	return a.print(answer{body, items, t})
}

// lines returns each thing of the answer as JSON on a line of its own.
func (ans answer) lines() ([]byte, error) {
	items := [][]byte{ans.body}
	if ans.items != "" {
		var err error
		if items, err = elements(ans.body, ans.items); err != nil {
			return nil, err
		}
	}
	var out []byte
	for _, item := range items {
		line := jsontext.Value(bytes.Clone(item))
		if err := line.Compact(); err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}

// elements returns the elements of the array that is a member of an object, as
// they were written.
func elements(object []byte, name string) ([][]byte, error) {
	members, err := directory.ParseObject(object)
	if err != nil {
		return nil, err
	}
	if array, ok := strictjson.FindMember(members, name); ok {
		return split(array)
	}
	return nil, fmt.Errorf("the answer has no %q", name)
}

var errNoArray = errors.New("not a JSON array")

// split returns the elements of a JSON array as they were written. Whether they
// are strict JSON is for their reader to say.
func split(array []byte) ([][]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(array), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, errors.Join(errNoArray, err)
	}
	var items [][]byte
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		items = append(items, bytes.Clone(v))
	}
	return items, nil
}

// draw lays a table out: in columns for a terminal, else with a tab between two
// cells. Nothing is drawn of a table without rows.
func (a *app) draw(t table) []byte {
	if len(t.rows) == 0 {
		return nil
	}
	lines := t.shown(a.output == "wide")
	var b strings.Builder
	if !a.terminal {
		for _, line := range lines {
			b.WriteString(strings.Join(line, "\t") + "\n")
		}
		return []byte(b.String())
	}

	columns := tabwriter.NewWriter(&b, 0, 0, columnGap, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(columns, strings.Join(line, "\t"))
	}
	_ = columns.Flush() // a strings.Builder takes everything

	return a.emphasizeHead(b.String())
}

// columnGap is the number of spaces between the widest cell of a column and the next column.
const columnGap = 2

// emphasizeHead returns the lines of a table without trailing spaces, the first one in bold.
func (a *app) emphasizeHead(text string) []byte {
	var b strings.Builder
	first := true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if first {
			line = a.bold(line)
			first = false
		}
		b.WriteString(line + "\n")
	}

	return []byte(b.String())
}

// shown returns the headings and rows with the columns that are asked for, every
// cell fit to be seen.
func (t table) shown(wide bool) [][]string {
	lines := make([][]string, 0, len(t.rows)+1)
	for n, row := range slices.Insert(slices.Clone(t.rows), 0, t.head) {
		var line []string
		for i, cell := range row {
			head, hidden := strings.CutPrefix(t.head[i], "+")
			if hidden && !wide {
				continue
			}
			if n == 0 {
				cell = head
			}
			line = append(line, safe(cell))
		}
		lines = append(lines, line)
	}
	return lines
}

// bold returns a heading as it stands out: on a terminal, unless colours are
// switched off (no-color.org).
func (a *app) bold(s string) string {
	if !a.terminal || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[m"
}

// note tells a person something that is no data.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, safe(fmt.Sprintf(format, args...)))
}
